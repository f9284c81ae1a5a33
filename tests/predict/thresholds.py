#!/usr/bin/env python3
"""Computes the reference results for `runner evaluate --threshold` of a rare class, with scikit-learn.

    python thresholds.py    rare.csv, the weights of a model of it, and thresholds.json

The model is a logistic regression; its two outputs are half its score and the negative of that. Made with Python 3.11.7,
scikit-learn 1.9.1, numpy 2.4.6, safetensors 0.8.0.
"""

import json
import pathlib

import numpy as np
from safetensors.numpy import save_file
from sklearn import metrics
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier

HERE = pathlib.Path(__file__).parent
ROWS = 500
CLASSES = ["ill", "well"]


def main():
    random = np.random.default_rng(2026)
    ill = random.random(ROWS) < 0.06
    x = np.round(random.normal(0, 1, (ROWS, 2)) + np.outer(ill, [1.2, 0.8]), 3).astype(np.float32)
    truth = np.where(ill, "ill", "well")
    lines = [f"{a:.3f},{b:.3f},{name}\n" for (a, b), name in zip(x, truth)]
    (HERE / "rare.csv").write_text("marker,age,state\n" + "".join(lines))
    fitted = LogisticRegression().fit(x, truth)
    # The score is that of the second class.
    half = np.concatenate([-fitted.coef_, fitted.coef_]).astype(np.float32) / 2
    bias = np.concatenate([-fitted.intercept_, fitted.intercept_]).astype(np.float32) / 2
    save_file({"0.weight": half, "0.bias": bias}, HERE / "rare.safetensors")
    fitted.coef_, fitted.intercept_ = (half[1:] * 2).astype(float), (bias[1:] * 2).astype(float)

    found = {}
    average = {"average": "macro", "zero_division": 0}
    shares = fitted.predict_proba(x)
    for place, positive in enumerate(CLASSES):
        is_positive, share = truth == positive, shares[:, place]
        of_class = found[positive] = {"average_precision": metrics.average_precision_score(is_positive, share)}
        of_class["loss"], of_class["auc"] = metrics.log_loss(truth, shares), metrics.roc_auc_score(is_positive, share)
        of_class["at"] = {}
        for threshold in [0.1, 0.3, 0.9]:
            chosen = FixedThresholdClassifier(
                FrozenEstimator(fitted), threshold=threshold, pos_label=positive, response_method="predict_proba"
            )
            predicted = chosen.fit(x, truth).predict(x)
            precision, recall, f1, _ = metrics.precision_recall_fscore_support(
                truth, predicted, labels=[positive], zero_division=0
            )
            of_class["at"][threshold] = {
                "accuracy": metrics.accuracy_score(truth, predicted),
                "f1": metrics.f1_score(truth, predicted, **average),
                "f1_weighted": metrics.f1_score(truth, predicted, average="weighted", zero_division=0),
                "precision": metrics.precision_score(truth, predicted, **average),
                "recall": metrics.recall_score(truth, predicted, **average),
                "confusion": metrics.confusion_matrix(truth, predicted, labels=CLASSES).tolist(),
                "of_class": {"precision": precision[0], "recall": recall[0], "f1": f1[0]},
            }
        precision, recall, thresholds = metrics.precision_recall_curve(is_positive, share)
        with np.errstate(invalid="ignore"):
            f1 = np.nan_to_num(2 * precision * recall / (precision + recall))[:-1]
        best = int(np.argmax(f1))
        of_class["best"] = {
            "at_most": thresholds[best],
            "above": thresholds[best - 1] if best > 0 else 0.0,
            "precision": precision[best],
            "recall": recall[best],
            "f1": f1[best],
        }
    (HERE / "thresholds.json").write_text(json.dumps(found, indent=1) + "\n")


main()
