"""The jobs that are timed on a GPU, and their data as .npy files that every contender reads. Needs only
Python.

    python jobs.py FOLDER        writes the files that are not there yet

Features are float32 in 0..1 and labels are random, because the time does not depend on what is learned."""

import array
import random
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    name: str
    title: str
    widths: tuple  # of the layers, beginning with the input; ReLU between them
    optimizer: str  # "sgd" or "adam"
    lr: float
    batch: int
    rows: int
    epochs: int  # of our program
    rival_steps: int  # of a rival, after its warm-up
    precisions: tuple = ("f32",)

    @property
    def classes(self):
        return self.widths[-1] > 1

    @property
    def flops_per_step(self):
        """FLOPs of the products: forward, gradient of the weights, and gradient of the inputs except the
        first layer's."""
        products = [a * b for a, b in zip(self.widths, self.widths[1:])]
        return 2 * self.batch * (3 * sum(products) - products[0])


JOBS = {
    job.name: job
    for job in (
        Job("G1", "linear 2 -> 1, batch 32", (2, 1), "sgd", 0.03, 32, 1000, 20_000, 4000),
        Job("G2", "64-32-10, Adam, batch 32", (64, 32, 10), "adam", 1e-3, 32, 1792, 2000, 4000),
        Job("G3", "784-256-10, batch 256", (784, 256, 10), "sgd", 0.1, 256, 60_000, 200, 2000, ("f32", "tf32")),
        Job(
            "G4", "784-2048-2048-10, batch 8192", (784, 2048, 2048, 10), "sgd", 0.01, 8192, 65_536, 40, 200,
            ("f32", "tf32", "bf16"),
        ),
        Job(
            "G5", "784-2048-2048-10, batch 1024", (784, 2048, 2048, 10), "sgd", 0.01, 1024, 65_536, 40, 1000,
            ("f32", "tf32"),
        ),
    )
}


@dataclass(frozen=True)
class Sweep:
    """Many trials of a job that differ in their seed."""

    trials: int
    epochs: int


SWEEPS = {"G1": Sweep(1000, 10), "G2": Sweep(1000, 10)}


def paths(job, folder):
    return Path(folder) / f"{job.name}_x.npy", Path(folder) / f"{job.name}_y.npy"


def header(descr, shape):
    """Version 1.0 of the .npy format: magic, length, a dictionary padded to 64 bytes."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def write(path, descr, shape, numbers):
    part = path.with_suffix(".part")
    with open(part, "wb") as file:
        file.write(header(descr, shape))
        for block in numbers:
            block.tofile(file)
    part.rename(path)


def make(job, folder):
    x, y = paths(job, folder)
    if x.exists() and y.exists():
        return
    rng = random.Random(20)
    # A byte has few values, so a table converts it to float at memory speed.
    table = [byte / 255 for byte in range(256)]
    rows = (array.array("f", map(table.__getitem__, rng.randbytes(job.widths[0]))) for _ in range(job.rows))
    write(x, "<f4", (job.rows, job.widths[0]), rows)
    if job.classes:
        labels = array.array("q", (rng.randrange(job.widths[-1]) for _ in range(job.rows)))
        write(y, "<i8", (job.rows,), [labels])
    else:
        write(y, "<f4", (job.rows, 1), [array.array("f", (rng.gauss(0, 1) for _ in range(job.rows)))])


def make_all(folder):
    Path(folder).mkdir(parents=True, exist_ok=True)
    for job in JOBS.values():
        make(job, folder)


if __name__ == "__main__":
    make_all(sys.argv[1])
