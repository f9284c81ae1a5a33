#!/usr/bin/env python3
"""Computes the reference curves for training, with PyTorch's own modules, optimizers and schedulers.

    python make.py              every case: <case>/init.safetensors, <case>/steps.csv, <case>/final.safetensors
    python make.py CASE ...     only those
    python make.py --load RUN   PyTorch reads RUN/model.safetensors and repeats the run's last validation

A case is a folder with a `spec.toml`, which is interpreted here independently: only the file is shared with
the program. Made with Python 3.11.7, torch 2.15.0+cu132 (on the CPU, one thread), numpy 2.4.6, safetensors
0.8.0.
"""

import csv
import pathlib
import sys
import tomllib

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import lr_scheduler

HERE = pathlib.Path(__file__).parent
SEED = 2026


def make_data():
    """83 rows of six numbers for one target; 150 rows of ten numbers for three targets or four classes."""
    random = np.random.default_rng(SEED)
    x = random.normal(size=(83, 6)).round(3)
    y = (np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] - 0.5 * x[:, 3] + 2.0 + 0.2 * random.normal(size=83)).round(3)
    with open(HERE / "numbers.csv", "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([f"x{i}" for i in range(6)] + ["y"])
        rows.writerows(np.column_stack([x, y]).tolist())
    x = random.normal(size=(150, 10)).astype(np.float32)
    turned = np.tanh(x @ random.normal(size=(10, 4))) @ random.normal(size=(4, 4))
    np.save(HERE / "features.npy", x)
    np.save(HERE / "classes.npy", turned.argmax(axis=1))
    np.save(HERE / "targets.npy", turned[:, :3].astype(np.float32))
    x = random.normal(size=(90, 5)).round(3)
    turned = np.tanh(x @ random.normal(size=(5, 3))).round(3)
    weights = random.gamma(1.0, 2.0, size=90).round(1)
    weights[::9] = 0.0
    table = np.column_stack([x, turned[:, :2], turned.argmax(axis=1), weights])
    with open(HERE / "weighted.csv", "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([f"x{i}" for i in range(5)] + ["y", "z", "kind", "w"])
        rows.writerows(table.tolist())


def read_data(spec, folder):
    """Features, targets and weights of rows, for training and for validation (`None` if there is none)."""
    if source := spec["data"].get("csv"):
        with open(folder / source["path"]) as file:
            rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
        targets = source["target"] if isinstance(source["target"], list) else [source["target"]]
        others = [*targets, *source.get("ignore", []), source.get("weight")]
        names = [name for name in rows[0] if name not in others]
        x, y = (np.array([[row[name] for name in some] for row in rows]) for some in (names, targets))
        if source["standardize"]:
            x = (x - x.mean(axis=0)) / x.std(axis=0)
        if source.get("standardize_target"):
            y = (y - y.mean(axis=0)) / y.std(axis=0)
        x, y = torch.from_numpy(x).float(), torch.from_numpy(y).float()
        if spec["model"].get("loss") == "cross_entropy":
            y = y[:, 0].long()
        w = torch.tensor([row[source["weight"]] for row in rows]) if "weight" in source else None
        return x, y, w, (x, y, w) if "validation_path" in source else None
    source = spec["data"]["npy"]
    x, y, vx, vy = (
        torch.from_numpy(np.load(folder / source[key]))
        for key in ("features", "labels", "validation_features", "validation_labels")
    )
    return x, y, None, (vx, vy, None)


def make_model(spec, features):
    layers, width = [], features
    plain = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}
    for layer in spec["model"]["layers"]:
        if isinstance(layer, str):
            layers.append(plain[layer]())
        elif linear := layer.get("linear"):
            layers.append(nn.Linear(width, linear["out_features"], bias=linear.get("bias", True)))
            width = linear["out_features"]
        elif "layer_norm" in layer:
            layers.append(nn.LayerNorm(width, **layer["layer_norm"]))
        else:
            layers.append(nn.Dropout(layer["dropout"]["p"]))
    return nn.Sequential(*layers)


def make_loss(spec, y):
    """The loss of predictions, targets and weights of rows, if these are not `None`; `y` are the targets of the training rows. A
    mean over a batch divides by the weights of its rows."""
    of_classes = None
    if weights := spec["model"].get("class_weights"):
        if weights == "balanced":
            weights = len(y) / (y.max().item() + 1) / torch.bincount(y)
        of_classes = torch.as_tensor(weights, dtype=torch.float32)
    losses = {"mse": nn.MSELoss, "l1": nn.L1Loss, "huber": nn.HuberLoss, "cross_entropy": nn.CrossEntropyLoss}
    kind = losses[spec["model"].get("loss", "mse")]
    options = {} if of_classes is None else {"weight": of_classes}
    mean, each = kind(**options), kind(reduction="none", **options)

    def loss(prediction, y, w):
        if w is None:
            return mean(prediction, y)
        losses = each(prediction, y)
        losses = losses if losses.ndim == 1 else losses.mean(dim=1)
        return (w * losses).sum() / (w if of_classes is None else w * of_classes[y]).sum()

    return loss


def make_optimizer(spec, model):
    ((kind, options),) = spec["optimizer"].items()
    options = dict(options)
    if kind in ("adam", "adamw"):
        defaults = (options.pop("beta1", 0.9), options.pop("beta2", 0.999))
        options["betas"] = defaults
    kinds = {
        "sgd": torch.optim.SGD,
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "rmsprop": torch.optim.RMSprop,
    }
    return kinds[kind](model.parameters(), **options)


def make_curve(optimizer, name, options, counts):
    """Makes the scheduler of one curve. `counts` is its duration, which some schedulers take as a
    parameter."""
    options = dict(options)
    if name == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimizer, options.pop("t_max", counts), **options)
    if name == "one_cycle":
        return lr_scheduler.OneCycleLR(optimizer, total_steps=options.pop("total_steps", counts), **options)
    curves = {
        "step": lr_scheduler.StepLR,
        "multi_step": lr_scheduler.MultiStepLR,
        "exponential": lr_scheduler.ExponentialLR,
        "linear": lr_scheduler.LinearLR,
    }
    return curves[name](optimizer, **options)


def make_schedule(spec, optimizer, steps, epochs):
    """A scheduler, or `None`; and whether it counts epochs."""
    schedule = dict(spec.get("schedule", {}))
    by_epoch = schedule.pop("interval", "step") == "epoch"
    counts = epochs if by_epoch else steps
    if not schedule:
        return None, by_epoch
    ((name, options),) = schedule.items()
    if name != "chain":
        return make_curve(optimizer, name, options, counts), by_epoch
    curves, milestones, first = [], [], 0
    for link in options:
        link = dict(link)
        lasts = link.pop("steps", counts - first)
        ((name, options),) = link.items()
        curves.append(make_curve(optimizer, name, options, lasts))
        first += lasts
        milestones.append(first)
    return lr_scheduler.SequentialLR(optimizer, curves, milestones[:-1]), by_epoch


def make_plateau(spec, optimizer):
    """The scheduler that judges validations, or `None`; its metric, and the steps before it begins. It is taken out of the
    schedule, whose rest does not change the rate once those steps are over."""
    schedule = spec.get("schedule", {})
    chain = schedule.get("chain", [schedule])
    if "plateau" not in chain[-1]:
        return None, None, 0
    options = dict(chain.pop()["plateau"]) if "chain" in schedule else dict(schedule.pop("plateau"))
    metric = options.pop("metric", "validation.loss").removeprefix("validation.")
    mode = "min" if metric == "loss" else "max"
    first = sum(link["steps"] for link in chain if link)
    return lr_scheduler.ReduceLROnPlateau(optimizer, mode=mode, **options), metric, first


def norm(tensors):
    return torch.linalg.vector_norm(torch.cat([t.detach().flatten() for t in tensors]))


def short(value):
    """The shortest decimal that reads back as the same f32."""
    return np.format_float_scientific(np.float32(value), trim="-")


def accuracy(prediction, y):
    return (prediction.argmax(dim=1) == y).float().mean()


def make_case(folder):
    spec = tomllib.loads((folder / "spec.toml").read_text())
    x, y, w, validation = read_data(spec, folder)
    torch.manual_seed(SEED)
    model, loss_of, batch = make_model(spec, x.shape[1]), make_loss(spec, y), spec["data"]["batch_size"]
    save_file(model.state_dict(), folder / "init.safetensors")
    optimizer = make_optimizer(spec, model)
    epochs = spec["trainer"]["max_epochs"]
    plateau, watched, first_judged = make_plateau(spec, optimizer)
    schedule, by_epoch = make_schedule(spec, optimizer, epochs * -(-len(x) // batch), epochs)
    clip = spec["trainer"].get("gradient_clip_val", 0.0)
    metrics = spec["logging"]["metrics"]
    lines, step = [], 0
    for _ in range(epochs):
        for first in range(0, len(x), batch):
            xs, ys, ws = (of if of is None else of[first : first + batch] for of in (x, y, w))
            optimizer.zero_grad()
            prediction = model(xs)
            loss = loss_of(prediction, ys, ws)
            loss.backward()
            step += 1
            known = {"loss": short(loss.item()), "lr": repr(float(optimizer.param_groups[0]["lr"]))}
            known["grad_norm"] = short(norm(p.grad for p in model.parameters()))
            known["param_norm"] = short(norm(model.parameters()))
            if "accuracy" in metrics:
                known["accuracy"] = short(accuracy(prediction, ys))
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if schedule and not by_epoch:
                schedule.step()
            lines.append([step, "train"] + [known[metric] for metric in metrics])
        if schedule and by_epoch:
            schedule.step()
        if validation:
            with torch.no_grad():
                prediction = model(validation[0])
                known = {"loss": short(loss_of(prediction, *validation[1:]))}
                if "accuracy" in metrics:
                    known["accuracy"] = short(accuracy(prediction, validation[1]))
            lines.append([step, "validation"] + [known.get(metric, "") for metric in metrics])
            if plateau and step > first_judged:
                plateau.step(float(known[watched]))
    with open(folder / "steps.csv", "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["step", "split"] + metrics)
        rows.writerows(lines)
    save_file(model.state_dict(), folder / "final.safetensors")
    print(f"{folder.name}: {step} steps, loss {lines[0][2]} -> {lines[-1][2]}")


def load(run):
    """Loads the model file into PyTorch unchanged; loss and accuracy must equal those of the run's last
    validation."""
    spec = tomllib.loads((run / "spec.toml").read_text())
    _, training, _, (x, y, w) = read_data(spec, run)
    model = make_model(spec, x.shape[1])
    model.load_state_dict(load_file(run / "model.safetensors"))
    with torch.no_grad():
        prediction = model.eval()(x)
    ours = [make_loss(spec, training)(prediction, y, w).item(), accuracy(prediction, y).item()]
    with open(run / "metrics.csv") as file:
        row = [row for row in csv.DictReader(file) if row["split"] == "validation"][-1]
    theirs = [float(row["loss"]), float(row["accuracy"])]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    print(f"loaded: loss {ours[0]:.6f}, accuracy {ours[1]:.4f}")


def main(arguments):
    torch.set_num_threads(1)
    if arguments[:1] == ["--load"]:
        return load(pathlib.Path(arguments[1]))
    if not arguments:
        make_data()
    for folder in sorted(path.parent for path in HERE.glob("*/spec.toml")):
        if not arguments or folder.name in arguments:
            make_case(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
