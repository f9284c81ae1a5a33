#!/usr/bin/env python3
"""Computes the reference results for `runner predict` and `runner evaluate`, with scikit-learn and PyTorch.

    python make.py        train.csv, new.csv, weights, and what they predict

Preprocessing is fitted on train.csv and applied to new.csv, whose columns are in another order. The weights
are random. Made with Python 3.11.7, scikit-learn 1.9.1, torch 2.15.0 (on the CPU), numpy 2.4.6, safetensors
0.8.0.
"""

import csv
import json
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn import metrics
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.inspection import permutation_importance
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, OneHotEncoder, StandardScaler
from torch import nn

HERE = pathlib.Path(__file__).parent
NUMBERS = ["width", "height", "depth"]
TEXTS = ["colour", "place"]


def make_rows(random, count):
    width, height = random.normal(3.0, 2.0, count), random.normal(-100.0, 30.0, count)
    depth = random.gamma(2.0, 1e-3, count)
    colour = random.choice(["red", "green", "blue", ""], count, p=[0.4, 0.3, 0.2, 0.1])
    place = random.choice(["north", "south", "east, far"], count)
    price = 50_000 + 9_000 * width - 80 * height * (colour == "red") + 4e6 * depth + random.normal(0, 2_000, count)
    kind = np.array(["small", "large", "a \"middle\" one"])[(width > 3).astype(int) + (place == "north")]
    rows = []
    for i in range(count):
        hole = random.random() < 0.1
        numbers = [f"{width[i]:.4f}", f"{height[i]:.2f}", "NA" if hole else f"{depth[i]:.7f}"]
        rows.append(dict(zip(NUMBERS, numbers), colour=colour[i], place=place[i], price=f"{price[i]:.1f}", kind=kind[i]))
    return rows


def write(name, columns, rows):
    with open(HERE / name, "w", newline="") as file:
        table = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)


def numbers_and_texts(rows):
    number = lambda cell: np.nan if cell == "NA" else float(cell)
    numbers = [[number(row[name]) for name in NUMBERS] for row in rows]
    # A missing cell is a category of its own, after all others.
    texts = [[row[name] or "\U0010ffff" for name in TEXTS] for row in rows]
    return np.array([n + t for n, t in zip(numbers, texts)], dtype=object)


def network(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Dropout(0.5), nn.LayerNorm(16), nn.Linear(16, outputs))


def importance(rows, truth, outputs_of, scores):
    """Of the columns as they are in the file, from many permutations. `scores` are functions of truth and outputs."""

    class Model:
        def fit(self, rows, truth):
            return self

    scorers = {name: lambda _, rows, truth, score=score: score(truth, outputs_of(rows)) for name, score in scores.items()}
    found = permutation_importance(Model(), numbers_and_texts(rows), truth, scoring=scorers, n_repeats=300, random_state=1)
    figures = lambda name, column: {"mean": found[name]["importances_mean"][column], "std": found[name]["importances_std"][column]}
    return {column: {name: figures(name, i) for name in scores} for i, column in enumerate(NUMBERS + TEXTS)}


def main():
    random = np.random.default_rng(2026)
    torch.manual_seed(2026)
    train, new = make_rows(random, 90), make_rows(random, 700)
    write("train.csv", NUMBERS + TEXTS + ["price", "kind"], train)
    write("new.csv", ["kind", "place", "depth", "note", "price", "colour", "height", "width"], [row | {"note": "x"} for row in new])
    columns = ColumnTransformer([
        ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), [0, 1, 2]),
        ("texts", OneHotEncoder(sparse_output=False), [3, 4]),
    ])
    columns.fit(numbers_and_texts(train))
    features = torch.from_numpy(columns.transform(numbers_and_texts(new)).astype(np.float32))
    expected = {}

    scaler = StandardScaler().fit([[float(row["price"])] for row in train])
    truth = np.array([[float(row["price"])] for row in new])
    model = network(features.shape[1], 1).eval()
    save_file(model.state_dict(), HERE / "price.safetensors")
    with torch.no_grad():
        scaled = model(features)
    predicted = scaler.inverse_transform(scaled.double().numpy())
    write("price.csv", ["prediction"], [{"prediction": repr(float(y))} for y in predicted[:, 0]])
    expected["price"] = {
        "loss": nn.functional.mse_loss(scaled.double(), torch.from_numpy(scaler.transform(truth))).item(),
        "mae": metrics.mean_absolute_error(truth, predicted),
        "rmse": metrics.root_mean_squared_error(truth, predicted),
        "r2": metrics.r2_score(truth, predicted),
    }

    @torch.no_grad()
    def outputs_of(rows):
        return model(torch.from_numpy(columns.transform(rows).astype(np.float32))).double()

    scores = {
        "loss": lambda truth, y: -np.mean((y.numpy() - scaler.transform(truth)) ** 2),
        "mae": lambda truth, y: -metrics.mean_absolute_error(truth, scaler.inverse_transform(y.numpy())),
    }
    expected["price"]["importance"] = importance(new, truth, outputs_of, scores)

    labels = LabelEncoder().fit([row["kind"] for row in train])
    truth = labels.transform([row["kind"] for row in new])
    model = network(features.shape[1], len(labels.classes_)).eval()
    save_file(model.state_dict(), HERE / "kind.safetensors")
    with torch.no_grad():
        outputs = model(features).double()
    shares, predicted = outputs.softmax(1).numpy(), outputs.argmax(1).numpy()
    names = [f"p_{name}" for name in labels.classes_]
    rows = [{"class": labels.classes_[c]} | dict(zip(names, map(repr, p.tolist()))) for c, p in zip(predicted, shares)]
    write("kind.csv", ["class", *names], rows)
    average = {"average": "macro", "zero_division": 0}
    expected["kind"] = {
        "loss": nn.functional.cross_entropy(outputs, torch.from_numpy(truth)).item(),
        "accuracy": metrics.accuracy_score(truth, predicted),
        "f1": metrics.f1_score(truth, predicted, **average),
        "f1_weighted": metrics.f1_score(truth, predicted, average="weighted", zero_division=0),
        "precision": metrics.precision_score(truth, predicted, **average),
        "recall": metrics.recall_score(truth, predicted, **average),
        "auc": metrics.roc_auc_score(truth, shares, multi_class="ovr"),
        "average_precision": metrics.average_precision_score(truth, shares),
        "confusion": metrics.confusion_matrix(truth, predicted).tolist(),
    }
    report = metrics.classification_report(truth, predicted, target_names=labels.classes_, output_dict=True, zero_division=0)
    expected["kind"]["classes"] = [{"class": name} | report[name] for name in labels.classes_]
    scores = {
        "loss": lambda truth, y: -nn.functional.cross_entropy(y, torch.from_numpy(truth)).item(),
        "auc": lambda truth, y: metrics.roc_auc_score(truth, y.softmax(1).numpy(), multi_class="ovr"),
    }
    expected["kind"]["importance"] = importance(new, truth, outputs_of, scores)

    # Two targets; the remaining numeric columns are width and depth.
    targets = ["price", "height"]
    truth = np.array([[float(row[name]) for name in targets] for row in new])
    scaler = StandardScaler().fit([[float(row[name]) for name in targets] for row in train])
    model = network(features.shape[1] - 1, 2).eval()
    save_file(model.state_dict(), HERE / "both.safetensors")
    with torch.no_grad():
        scaled = model(features[:, [0, *range(2, features.shape[1])]])
    predicted = scaler.inverse_transform(scaled.double().numpy())
    names = [f"prediction_{name}" for name in targets]
    write("both.csv", names, [dict(zip(names, map(repr, row.tolist()))) for row in predicted])
    scores = {"mae": metrics.mean_absolute_error, "rmse": metrics.root_mean_squared_error, "r2": metrics.r2_score}
    expected["both"] = {name: score(truth, predicted) for name, score in scores.items()}
    for name, score in scores.items():
        each = score(truth, predicted, multioutput="raw_values")
        expected["both"] |= {f"{name}_{target}": value for target, value in zip(targets, each.tolist())}

    (HERE / "metrics.json").write_text(json.dumps(expected, indent=1) + "\n")


main()
