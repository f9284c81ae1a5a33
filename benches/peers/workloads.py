"""The five jobs, and their data as .npy files that every contender reads.

    python workloads.py FOLDER        writes the files that are not there yet (needs numpy)

All features are float32. Rows are shuffled anew each epoch, the last partial batch is kept, and the loss of
every step is recorded. The driver imports this without numpy, because it only needs the definitions.
"""

import gzip
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    widths: tuple  # of the layers, beginning with the input; ReLU between them
    loss: str  # "mse" or "cross_entropy"
    optimizer: str  # "sgd" or "adam"
    lr: float
    batch: int
    rows: int
    epochs: tuple  # our program is measured at each, rivals at the last
    validates: bool = False  # after every epoch, over all validation rows

    def steps(self, epochs):
        return epochs * -(-self.rows // self.batch)

    @property
    def flops_per_step(self):
        """FLOPs of the products: forward, gradient of the weights, and gradient of the inputs except the
        first layer's."""
        products = [a * b for a, b in zip(self.widths, self.widths[1:])]
        return 2 * self.batch * (3 * sum(products) - products[0])


WORKLOADS = {
    w.name: w
    for w in (
        Workload("W1", "linear 2 -> 1", (2, 1), "mse", "sgd", 0.03, 32, 1000, (10, 200), validates=True),
        Workload("W2", "784-256-10", (784, 256, 10), "cross_entropy", "sgd", 0.1, 256, 60_000, (3,)),
        Workload("W3", "784-2048-2048-10", (784, 2048, 2048, 10), "cross_entropy", "sgd", 0.01, 1024, 20_480, (2,)),
        Workload("W4", "linear 100 -> 1", (100, 1), "mse", "sgd", 0.03, 1024, 1_000_000, (3,)),
        Workload("W5", "64-32-10, Adam", (64, 32, 10), "cross_entropy", "adam", 1e-3, 32, 1797, (20, 100)),
    )
}

PARTS = ("x", "y", "xv", "yv")  # features and targets for training, then for validation


def parts(work):
    return PARTS if work.validates else PARTS[:2]


def load(work, folder):
    """The arrays of a job: x, y (mse: float32 [rows, 1]; cross_entropy: int64 [rows]) and, where it
    validates, xv, yv."""
    import numpy as np

    return [np.load(Path(folder) / f"{work.name}_{part}.npy") for part in parts(work)]


def make(work):
    import numpy as np

    rng = np.random.default_rng(20)
    if work.name == "W5":
        return digits()
    inputs, outputs = work.widths[0], work.widths[-1]
    if work.loss == "mse":
        weights = np.array([2.0, -3.4]) if inputs == 2 else rng.standard_normal(inputs)
        arrays = []
        for rows in (work.rows, 1000):
            x = rng.standard_normal((rows, inputs), dtype=np.float32)
            y = x @ weights.astype(np.float32) + np.float32(4.2) + 0.01 * rng.standard_normal(rows, dtype=np.float32)
            arrays += [x, y.astype(np.float32)[:, None]]
        return arrays
    # Labels that a linear model can learn; features as small as pixels scaled to 0..1.
    teacher = rng.standard_normal((inputs, outputs), dtype=np.float32)
    x = 0.35 * rng.standard_normal((work.rows, inputs), dtype=np.float32)
    return [x.astype(np.float32), (x @ teacher).argmax(1).astype(np.int64)]


def digits():
    """The handwritten digits in experiments/, scaled to 0..1."""
    import numpy as np

    def idx(name):
        raw = gzip.decompress((ROOT / "experiments" / "data" / name).read_bytes())
        shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)

    images = idx("digits-images-idx3-ubyte.gz")
    labels = idx("digits-labels-idx1-ubyte.gz")
    return [(images.reshape(len(images), -1) / 16).astype(np.float32), labels.astype(np.int64)]


def write(folder, names=WORKLOADS):
    import numpy as np

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for work in (WORKLOADS[n] for n in names):
        paths = [folder / f"{work.name}_{part}.npy" for part in parts(work)]
        if all(path.exists() for path in paths):
            continue
        for path, array in zip(paths, make(work)):
            part = path.with_suffix(".part")
            with open(part, "wb") as file:
                np.save(file, np.ascontiguousarray(array))
            part.rename(path)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2:] or WORKLOADS)
