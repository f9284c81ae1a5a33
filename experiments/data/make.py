#!/usr/bin/env python3
"""Writes the small real data sets of this folder from the packages that ship them.

Run in this folder, with the versions that wrote the files that are here:

    python3 -m venv venv
    venv/bin/pip install scikit-learn==1.9.1 numpy==2.4.6
    venv/bin/pip install --no-deps palmerpenguins==0.1.6
    venv/bin/python make.py

The result is the same bytes each time.
"""

import csv
import gzip
import struct
from importlib.metadata import distribution
from pathlib import Path

from sklearn.datasets import load_diabetes, load_digits

HERE = Path(__file__).resolve().parent


def diabetes():
    """442 rows, 10 numeric columns, in their own units; the target is a number."""
    data = load_diabetes(scaled=False)
    with open(HERE / "diabetes.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([*data.feature_names, "progression"])
        for row, target in zip(data.data, data.target):
            table.writerow([f"{value:.10g}" for value in [*row, target]])


def penguins():
    """344 rows, numbers, text columns and missing cells, as the package ships them."""
    package = distribution("palmerpenguins")
    source = Path(package.locate_file("palmerpenguins/data/penguins.csv"))
    lines = source.read_text().splitlines()
    (HERE / "penguins.csv").write_text("\n".join(lines) + "\n")


def digits():
    """1797 images of 8 x 8 grey values from 0 to 16, as gzipped IDX files."""
    data = load_digits()
    images = data.images.astype("u1")
    labels = data.target.astype("u1")
    write_idx("digits-images-idx3-ubyte.gz", images)
    write_idx("digits-labels-idx1-ubyte.gz", labels)


def write_idx(name, array):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 0x08, array.ndim, *array.shape)
    with open(HERE / name, "wb") as file:
        # No name and no time inside, so that the bytes repeat.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            packed.write(header + array.tobytes())


diabetes()
penguins()
digits()
