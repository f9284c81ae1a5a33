"""The jobs: their data, their trials, and one trial in PyTorch, which Optuna, Ray Tune and Hydra all run."""

import itertools
from pathlib import Path

import numpy as np

SPACES = {
    "digits": {"lr": [0.001, 0.002, 0.005, 0.01, 0.02], "width": [32, 64, 128, 256], "seed": [0, 1, 2]},
    "linreg": {"lr": [float(f"{x:.6g}") for x in np.logspace(-4, -1, 1000)]},
}
EPOCHS = {"digits": 10, "linreg": 3, "halving": 27}
BATCH = {"digits": 64, "linreg": 32, "halving": 64}
# Samplers draw the trials, which stop early at rungs of 1, 3 and 9 epochs.
LR, WIDTH = (1e-4, 1e-1), (16, 256)


def space(job, trials):
    """The axes. With fewer trials than points: evenly chosen values of the only axis, or the first values of
    the last axis."""
    axes = {name: list(values) for name, values in SPACES.get(job, {}).items()}
    count = len(list(itertools.product(*axes.values())))
    if len(axes) == 1 and trials < count:
        return {"lr": axes["lr"][:: count // trials][:trials]}
    while len(list(itertools.product(*axes.values()))) > trials:
        [values for values in axes.values() if len(values) > 1][-1].pop()
    return axes


def write(folder):
    from sklearn.datasets import load_digits

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    order = random.permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32), y[order].astype(np.int64)
    save(folder, "digits", x[360:], y[360:], x[:360], y[:360])
    x = random.standard_normal((2000, 2)).astype(np.float32)
    y = (x @ [2.0, -3.4] + 4.2 + 0.01 * random.standard_normal(2000)).astype(np.float32)[:, None]
    save(folder, "linreg", x[:1000], y[:1000], x[1000:], y[1000:])


def save(folder, job, *arrays):
    for name, array in zip(("x", "y", "vx", "vy"), arrays):
        np.save(folder / f"{job}-{name}.npy", array)


def load(folder, job):
    job = "linreg" if job == "linreg" else "digits"
    return [np.load(Path(folder) / f"{job}-{name}.npy") for name in ("x", "y", "vx", "vy")]


def better(job, values):
    """The best of these: the highest accuracy, or the lowest loss."""
    return min(values) if job == "linreg" else max(values)


def train(data, job, lr, width=None, seed=0, report=lambda epoch, value: None):
    """Runs one trial on one thread; returns the best validation accuracy, or loss, of its epochs. `report`
    may end it by raising an exception."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    x, y, vx, vy = (torch.from_numpy(a) for a in data)
    if job != "linreg":
        layers = [torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)]
        model, loss = torch.nn.Sequential(*layers), torch.nn.CrossEntropyLoss()
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        score = lambda: (model(vx).argmax(1) == vy).float().mean().item()
    else:
        model, loss = torch.nn.Linear(2, 1), torch.nn.MSELoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        score = lambda: loss(model(vx), vy).item()
    values = []
    for _ in range(EPOCHS[job]):
        for rows in torch.randperm(len(x)).split(BATCH[job]):
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            values.append(score())
        report(len(values), values[-1])
    return better(job, values)
