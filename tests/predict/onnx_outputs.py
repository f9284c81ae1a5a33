"""The outputs of an exported model: `python3 onnx_outputs.py MODEL.onnx ROWS` prints a CSV like `runner
predict`.

ROWS is a CSV file if the model was trained on a table, an npy file if it was trained on arrays. Needs
onnxruntime.
"""

import csv
import json
import sys

import numpy as np
import onnxruntime

MISSING = {"", "na", "n/a", "nan", "null"}
# A missing number is NaN, a missing word is empty.
CELLS = {
    "tensor(double)": lambda cell: float("nan") if cell.lower() in MISSING else float(cell),
    "tensor(string)": lambda cell: "" if cell.lower() in MISSING else cell,
}
KINDS = {"tensor(double)": np.float64, "tensor(string)": str}

model, rows = sys.argv[1:]
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
if rows.endswith(".npy"):
    features = np.load(rows)
    feeds = {"features": features.reshape(len(features), -1).astype(np.float32)}
else:
    table = list(csv.DictReader(open(rows, newline="", encoding="utf-8-sig")))
    feeds = {}
    for column in session.get_inputs():
        cells = [CELLS[column.type](row[column.name].strip()) for row in table]
        feeds[column.name] = np.array(cells, KINDS[column.type]).reshape(-1, 1)
outputs = dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds)))

out = csv.writer(sys.stdout, lineterminator="\n")
metadata = session.get_modelmeta().custom_metadata_map
if "classes" in metadata:
    out.writerow(["class"] + ["p_" + name for name in json.loads(metadata["classes"])])
    for name, shares in zip(outputs["class"], outputs["probabilities"]):
        out.writerow([name, *map(repr, map(float, shares))])
else:
    targets = json.loads(metadata.get("targets", "[]"))
    out.writerow([f"prediction_{name}" for name in targets] or ["prediction"])
    for row in outputs["prediction"]:
        out.writerow([repr(float(y)) for y in row])
