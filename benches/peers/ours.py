"""What the benches of our program share: their options, a run in a folder of its own, its files, and what is said of the machine."""

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import machine

ROOT = Path(__file__).resolve().parents[2]
BINARY = ROOT / "target" / "release" / "runner"
LIMIT_S = 600
DAY = f"{datetime.now(timezone.utc):%Y-%m-%d}"


def parser(description, quick, repeats=5):
    """The options of a bench that writes into results/; `quick` says what is less with `--quick`."""
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--binary", type=Path, default=BINARY)
    p.add_argument("--repeats", type=int, default=repeats)
    p.add_argument("--out", type=Path, default=ROOT / "benches" / "results")
    p.add_argument("--quick", action="store_true", help=f"{quick}, one repeat, into target/")
    return p


def parsed(p):
    args = p.parse_args()
    args.binary = args.binary.resolve()
    if args.quick:
        args.repeats, args.out = 1, ROOT / "target" / f"{Path(sys.argv[0]).name}-quick"
    args.out.mkdir(parents=True, exist_ok=True)
    return args


def path(args, ending):
    """Where the results of this bench go."""
    return args.out / f"{Path(sys.argv[0]).name}-{machine.slug()}-{DAY}.{ending}"


@contextmanager
def ran(binary, spec, *arguments, before=()):
    """The folder of a run on the CPU, for as long as it is read; `before` are words before the command."""
    runs = Path(tempfile.mkdtemp(dir=spec.parent))
    try:
        command = [*before, binary, spec, "-q", "--runs-dir", runs, *arguments]
        environment = {**os.environ, **machine.ENVIRONMENT}
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, env=environment, timeout=LIMIT_S)
        (name,) = runs.iterdir()
        (folder,) = name.iterdir()
        yield folder
    finally:
        shutil.rmtree(runs)


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def summary(folder):
    return table(folder / "summary.csv")[0]


def layers(widths):
    return ', "relu", '.join(f"{{ linear = {{ out_features = {width} }} }}" for width in widths)


def npy(path, shape, numbers, kind="|u1"):
    """An array of bytes, or of another kind, in version 1.0 of NumPy's format."""
    path.write_bytes(header(kind, shape) + bytes(numbers))


def header(kind, shape):
    """Magic, length, and a dictionary padded to 64 bytes."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def host():
    model, cores, vectors = machine.cpu()
    return f"{model}, {cores} cores, {vectors}"


def beside(load):
    """What others took of the machine meanwhile."""
    return f"others kept {load:.2f} cores busy meanwhile" + (": noisy" if load > 0.3 else "")
