"""Who runs: this program and its rivals, each as the command of one process."""

import csv
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDED = json.loads((HERE / "recorded.json").read_text())


@dataclass(frozen=True)
class Rival:
    name: str
    script: str
    variant: str
    modules: tuple  # what must be there
    install: str  # what pip is told where it is not
    jobs: str = "W1 W2 W3 W4 W5"
    optional: bool = False  # measured only where named by --with
    counted: bool = True  # False: not the same algorithm in W1 and W4, so no bar is held against it there


RIVALS = (
    Rival("PyTorch eager", "torch_eager.py", "eager", ("torch",), "torch"),
    Rival("torch.compile", "torch_eager.py", "compile", ("torch",), "torch", optional=True),
    Rival("JAX scan", "jax_fit.py", "scan", ("jax", "optax"), "jax optax"),
    Rival("JAX step", "jax_fit.py", "step", ("jax", "optax"), "jax optax"),
    Rival("scikit-learn", "sklearn_fit.py", "", ("sklearn",), "scikit-learn", jobs="W1 W2 W4 W5", counted=False),
    Rival("Keras", "keras_fit.py", "", ("keras",), "keras tensorflow-cpu (or keras jax)"),
    Rival("Lightning", "lightning_fit.py", "", ("pytorch_lightning",), "pytorch-lightning", jobs="W1 W2 W5"),
)


def counts(rival, job):
    return rival.counted or job not in ("W1", "W4")


def measure_rival(measure, python, rival, work, data, epochs, warm_up=1):
    """One process: a line of JSON about its loop, and what the driver saw of it from outside."""
    with tempfile.TemporaryDirectory() as folder:
        command = [python, HERE / rival.script, work.name, "--data", data, "--epochs", epochs]
        command += ["--warm-up", warm_up, "--losses", Path(folder) / "losses.csv"]
        if rival.variant:
            command += ["--variant", rival.variant]
        seen = measure(command, cwd=folder)
    told = json.loads(seen.pop("stdout").splitlines()[-1])
    return {**told, **seen, "epochs": epochs}


def measure_ours(measure, binary, work, data, epochs, spec=None, options=()):
    """One run: its summary.csv, the mean loss of its last epoch, and what the driver saw of it from outside."""
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
