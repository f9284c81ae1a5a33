#!/usr/bin/env python3
"""Computes the reference results for indicators of missing cells, with scikit-learn.

    python missing.py    missing_train.csv, missing_new.csv, the weights of a model, and missing.json

`glucose` and `bmi` have missing cells in both files, `age` in the new rows alone, `ward` holds text. The model is linear,
with random weights. Made with Python 3.11.7, scikit-learn 1.9.1, numpy 2.4.6, safetensors 0.8.0.
"""

import csv
import json
import pathlib

import numpy as np
from safetensors.numpy import save_file
from sklearn import metrics
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.inspection import permutation_importance
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

HERE = pathlib.Path(__file__).parent
NUMBERS = ["glucose", "age", "bmi"]
MISSING = {"", "NA", "-999"}


def make_rows(random, count, share_without_age):
    rows = []
    for _ in range(count):
        age = random.integers(18, 90)
        glucose = random.normal(100, 20)
        bmi = random.normal(25, 4)
        is_ordered, is_weighed, has_age = random.random(3) > [0.3, 0.1, share_without_age]
        rows.append({
            "glucose": f"{glucose:.2f}" if is_ordered else random.choice(["", "NA"]),
            "age": str(age) if has_age else "NA",
            "bmi": f"{bmi:.1f}" if is_weighed else "-999",
            "ward": random.choice(["north", "south", ""], p=[0.5, 0.4, 0.1]),
            "risk": f"{0.01 * age + 0.5 * (not is_ordered) + 0.02 * bmi + random.normal(0, 0.1):.4f}",
        })
    return rows


def write(name, columns, rows):
    with open(HERE / name, "w", newline="") as file:
        table = csv.DictWriter(file, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def cells(rows):
    number = lambda cell: np.nan if cell in MISSING else float(cell)
    # A missing text is a category of its own, after all others.
    return np.array([[*(number(row[name]) for name in NUMBERS), row["ward"] or "\U0010ffff"] for row in rows], dtype=object)


def main():
    random = np.random.default_rng(2026)
    train, new = make_rows(random, 60, 0.0), make_rows(random, 300, 0.1)
    write("missing_train.csv", ["glucose", "age", "bmi", "ward", "risk"], train)
    write("missing_new.csv", ["ward", "bmi", "risk", "age", "glucose"], new)
    # Numbers, then their indicators, which are not standardized.
    numbers = make_pipeline(
        SimpleImputer(add_indicator=True),
        ColumnTransformer([("numbers", StandardScaler(), [0, 1, 2])], remainder="passthrough"),
    )
    columns = ColumnTransformer([("numbers", numbers, [0, 1, 2]), ("texts", OneHotEncoder(sparse_output=False), [3])])
    columns.fit(cells(train))
    features = columns.transform(cells(train))
    weight = random.normal(0, 1, (1, features.shape[1])).astype(np.float32)
    bias = np.array([0.3], np.float32)
    save_file({"0.weight": weight, "0.bias": bias}, HERE / "missing.safetensors")

    def predict(rows):
        return columns.transform(rows) @ weight[0].astype(float) + bias[0]

    truth = np.array([float(row["risk"]) for row in new])
    predicted = predict(cells(new))

    class Model:
        def fit(self, rows, truth):
            return self

    def mse(_, rows, truth):
        return -metrics.mean_squared_error(truth, predict(rows))

    found = permutation_importance(Model(), cells(new), truth, scoring=mse, n_repeats=300, random_state=1)
    expected = {
        "features": features.tolist(),
        "predictions": predicted.tolist(),
        "mae": metrics.mean_absolute_error(truth, predicted),
        "loss": metrics.mean_squared_error(truth, predicted),
        "importance": {
            name: {"mean": found["importances_mean"][i], "std": found["importances_std"][i]}
            for i, name in enumerate([*NUMBERS, "ward"])
        },
    }
    (HERE / "missing.json").write_text(json.dumps(expected, indent=1) + "\n")


main()
