"""The contenders: this program and its rivals, each as the command of one process."""

import csv
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import compiled

HERE = Path(__file__).resolve().parent
EVERY = "W1 W2 W3 W4 W5"
RECORDED = json.loads((HERE / "recorded.json").read_text())


@dataclass(frozen=True)
class Rival:
    name: str
    script: str = ""  # file name, if it is in Python
    program: str = ""  # name in rust/src/bin, if it is in Rust
    variant: str = ""
    modules: tuple = ()  # Python modules that it needs
    install: str = ""  # pip arguments that install them
    jobs: str = EVERY
    optional: bool = False  # measured only if named by --with
    uncounted: str = ""  # jobs in which it does not count for the bars,
    why: str = ""  # and the reason


RIVALS = (
    Rival("PyTorch eager", "torch_eager.py", variant="eager", modules=("torch",), install="torch"),
    Rival("torch.compile", "torch_eager.py", variant="compile", modules=("torch",), install="torch", optional=True),
    Rival("JAX scan", "jax_fit.py", variant="scan", modules=("jax", "optax"), install="jax optax"),
    Rival("JAX step", "jax_fit.py", variant="step", modules=("jax", "optax"), install="jax optax"),
    Rival(
        "scikit-learn",
        "sklearn_fit.py",
        modules=("sklearn",),
        install="scikit-learn",
        jobs="W1 W2 W4 W5",
        uncounted="W1 W4",
        why="updates row by row",
    ),
    Rival("Keras", "keras_fit.py", modules=("keras",), install="keras tensorflow-cpu (or keras jax)"),
    Rival(
        "Lightning", "lightning_fit.py", modules=("pytorch_lightning",), install="pytorch-lightning", jobs="W1 W2 W5"
    ),
    Rival("dfdx", program="dfdx_fit"),
    Rival("candle", program="candle_fit"),
    Rival("burn", program="burn_fit"),
    Rival("gemm loop", program="gemm_fit", uncounted=EVERY, why="a loop by hand, no library that trains"),
)


def counts(rival, job):
    return job not in rival.uncounted.split()


def measure_rival(measure, python, rival, work, data, epochs, warm_up=1, threads=1):
    """Runs one process; returns its line of JSON about its loop, plus what was measured from outside.
    Python's libraries choose their thread counts themselves."""
    with tempfile.TemporaryDirectory() as folder:
        if rival.program:
            command = compiled.command(rival.program, work, threads)
        else:
            command = [python, HERE / rival.script, work.name]
        command += ["--data", data, "--epochs", epochs]
        command += ["--warm-up", warm_up, "--losses", Path(folder) / "losses.csv"]
        if rival.variant:
            command += ["--variant", rival.variant]
        seen = measure(command, cwd=folder)
    told = json.loads(seen.pop("stdout").splitlines()[-1])
    return {**told, **seen, "epochs": epochs}


def measure_ours(measure, binary, work, data, epochs, spec=None, options=()):
    """Runs the program; returns its summary.csv, the mean loss of its last epoch, and what was measured from
    outside."""
    spec = spec or HERE / f"{work.name}.toml"
    folder = Path(tempfile.mkdtemp())
    try:
        overrides = [f"trainer.max_epochs={epochs}", "logging.policy=buffered"]
        if data:
            keys = {"x": "features", "y": "labels", "xv": "validation_features", "yv": "validation_labels"}
            from workloads import parts

            overrides += [f"data.npy.{keys[part]}={data / work.name}_{part}.npy" for part in parts(work)]
        seen = measure([binary, spec, *overrides, "-q", "--runs-dir", folder, *options], cwd=folder)
        (run,) = folder.glob("*/*/")
        with open(run / "summary.csv") as file:
            (summary,) = csv.DictReader(file)
        with open(run / "metrics.csv") as file:
            losses = [float(r["loss"]) for r in csv.DictReader(file) if r["split"] == "train"]
        seen.pop("stdout")
        last = losses[-(-(-work.rows // work.batch)) :]
        return {
            **seen,
            "epochs": epochs,
            "steps": int(summary["steps"]),
            "losses": len(losses),
            "steps_per_s": float(summary["steps_per_s"]),
            "train_s": float(summary["train_s"]),
            "logging_share": float(summary["logging_share"]),
            "peak_rss_bytes": int(summary["peak_rss_bytes"]),
            "engine": summary["engine"],
            "final_loss": sum(last) / len(last),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
