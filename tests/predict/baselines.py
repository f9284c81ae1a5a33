#!/usr/bin/env python3
"""Computes the reference baselines for `runner evaluate`, with scikit-learn's models that use no features.

    python baselines.py    baselines.json, from train.csv and new.csv

Made with Python 3.11.7, scikit-learn 1.9.1, numpy 2.4.6.
"""

import csv
import json
import pathlib

import numpy as np
from sklearn import metrics
from sklearn.dummy import DummyClassifier, DummyRegressor

HERE = pathlib.Path(__file__).parent


def read(name):
    with open(HERE / name, newline="") as file:
        return list(csv.DictReader(file))


def main():
    train, new = read("train.csv"), read("new.csv")
    none = np.zeros((len(new), 1))
    column = lambda rows, name: np.array([float(row[name]) for row in rows])
    found = {}
    for name, targets in {"price": ["price"], "both": ["price", "height"]}.items():
        truth = np.stack([column(new, target) for target in targets], axis=1)
        predicted = DummyRegressor(strategy="mean").fit(none, truth).predict(none).reshape(truth.shape)
        scales = np.array([column(train, target).std() for target in targets])
        scores = {"mae": metrics.mean_absolute_error, "rmse": metrics.root_mean_squared_error, "r2": metrics.r2_score}
        found[name] = {"loss": np.mean(((truth - predicted) / scales) ** 2)}
        found[name] |= {score: of(truth, predicted) for score, of in scores.items()}
        if len(targets) > 1:
            for score, of in scores.items():
                each = of(truth, predicted, multioutput="raw_values")
                found[name] |= {f"{score}_{target}": value for target, value in zip(targets, each.tolist())}

    truth = np.array([row["kind"] for row in new])
    model = DummyClassifier(strategy="prior").fit(none, truth)
    predicted, shares = model.predict(none), model.predict_proba(none)
    average = {"average": "macro", "zero_division": 0}
    found["kind"] = {
        "loss": metrics.log_loss(truth, shares),
        "accuracy": metrics.accuracy_score(truth, predicted),
        "f1": metrics.f1_score(truth, predicted, **average),
        "f1_weighted": metrics.f1_score(truth, predicted, average="weighted", zero_division=0),
        "precision": metrics.precision_score(truth, predicted, **average),
        "recall": metrics.recall_score(truth, predicted, **average),
        "auc": metrics.roc_auc_score(truth, shares, multi_class="ovr"),
        "average_precision": metrics.average_precision_score(truth, shares),
    }
    (HERE / "baselines.json").write_text(json.dumps(found, indent=1) + "\n")


main()
