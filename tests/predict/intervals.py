#!/usr/bin/env python3
"""Computes the reference intervals for `runner evaluate`, with SciPy's bootstrap and scikit-learn's metrics.

    python intervals.py    intervals.json, from new.csv and what make.py found that its models predict

Made with Python 3.11.7, scipy 1.17.1, scikit-learn 1.9.1, numpy 2.4.6.
"""

import csv
import json
import pathlib
import warnings

import numpy as np
from scipy.stats import bootstrap
from sklearn import metrics

HERE = pathlib.Path(__file__).parent
RESAMPLES = 10_000


def read(name):
    with open(HERE / name, newline="") as file:
        return list(csv.DictReader(file))


def intervals(scores, *columns):
    """Percentile intervals of each score of rows of these columns."""
    rows = np.arange(len(columns[0]))
    of = lambda score: lambda chosen: score(*(column[chosen] for column in columns))
    found = {}
    for name, score in scores.items():
        drawn = bootstrap((rows,), of(score), n_resamples=RESAMPLES, method="percentile", vectorized=False, rng=7)
        found[name] = [float(end) for end in drawn.confidence_interval]
    return found


def main():
    warnings.simplefilter("ignore")
    new, train = read("new.csv"), read("train.csv")
    known = np.array([float(row["price"]) for row in train])
    truth = np.array([float(row["price"]) for row in new])
    predicted = np.array([float(row["prediction"]) for row in read("price.csv")])
    found = {}
    found["price"] = intervals(
        {
            "loss": lambda y, p: np.mean(((y - p) / known.std()) ** 2),
            "mae": metrics.mean_absolute_error,
            "rmse": metrics.root_mean_squared_error,
            "r2": metrics.r2_score,
        },
        truth,
        predicted,
    )
    kinds = read("kind.csv")
    names = sorted({row["kind"] for row in train})
    shares = np.array([[float(row[f"p_{name}"]) for name in names] for row in kinds])
    truth = np.array([names.index(row["kind"]) for row in new])
    predicted = shares.argmax(1)
    average = {"average": "macro", "zero_division": 0}
    of_classes = lambda score, **words: lambda y, c, p: score(y, c, **words)
    found["kind"] = intervals(
        {
            "loss": lambda y, c, p: -np.mean(np.log(p[np.arange(len(y)), y])),
            "accuracy": of_classes(metrics.accuracy_score),
            "f1": of_classes(metrics.f1_score, **average),
            "f1_weighted": of_classes(metrics.f1_score, average="weighted", zero_division=0),
            "precision": of_classes(metrics.precision_score, **average),
            "recall": of_classes(metrics.recall_score, **average),
            "auc": lambda y, c, p: metrics.roc_auc_score(y, p, multi_class="ovr"),
            "average_precision": lambda y, c, p: metrics.average_precision_score(y, p),
        },
        truth,
        predicted,
        shares,
    )
    (HERE / "intervals.json").write_text(json.dumps(found, indent=1) + "\n")


main()
