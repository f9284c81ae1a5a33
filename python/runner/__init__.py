"""Runs experiments and reads their folders: a thin layer over the program `runner`, which does all the work.

>>> import runner
>>> run = runner.run("experiments/diabetes.toml", {"trainer.max_epochs": 5})
>>> run.metrics.tail()
>>> run.weights()["0.weight"].shape
>>> run.predict(frame)
"""

import csv
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path

__all__ = ["Run", "RunnerError", "compare", "load", "program", "resolve", "run"]

# Number formats of a safetensors file, by their NumPy names.
_KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}


# Columns with text, even if it looks like numbers.
_WORDS = {
    "path",
    "folder",
    "reason",
    "run",
    "name",
    "status",
    "devices_requested",
    "devices_used",
    "scaling",
    "precision",
    "engine",
    "data_digest",
}


class RunnerError(Exception):
    """The program's error output, its exit code, and the run if there is one."""

    def __init__(self, message, code, run=None):
        super().__init__(message)
        self.code = code
        self.run = run


def program():
    """The path of the program: RUNNER_BINARY, or the one in this package, or the one in PATH."""
    named = os.environ.get("RUNNER_BINARY")
    schemes = [None, sysconfig.get_preferred_scheme("user")]
    folders = [sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts") for scheme in schemes]
    known = [named] if named else [os.path.join(folder, "runner") for folder in folders]
    found = next((path for path in known if os.access(path, os.X_OK)), None) or shutil.which(named or "runner")
    if found is None:
        raise FileNotFoundError(f"the program `{named or 'runner'}` is not there")
    return found


def run(spec, overrides=(), options=()):
    """Runs a spec, with overrides (a dict, or words such as "trainer.max_epochs=3") and options ("--runs-dir", "out").

    Returns the run, or the sweep with its trials. Raises RunnerError if it is rejected or fails.
    """
    return _begun("run", spec, overrides, options)


def compare(*paths, options=()):
    """The table of `runner compare --export csv`: a data frame where pandas is installed, else a dict of lists.

    `paths`: runs and sweeps, their folders, or globs of them, or lists of these. It has a row for each run, in their order, by
    options such as "--metric", "loss" the best first; with "--by", "lr" one for each setting, the best first. Raises RunnerError
    if they do not compare.
    """
    given = next((word for word in options if word.split("=")[0] in ("--fail-if", "--export")), None)
    if given is not None:
        raise ValueError(f"`{given}` gives no table: `runner compare` takes it in a shell")
    words = [os.fspath(path) for one in paths for path in (one if isinstance(one, (list, tuple)) else [one])]
    return _table(io.StringIO(_done(_call("compare", *words, "--export", "csv", *options)).stdout, newline=""))


def resolve(spec, overrides=()):
    """The complete spec as a dict: every default and override filled in, as `runner check --spec` prints it. Nothing runs."""
    return tomllib.loads(_done(_call("check", "--spec", os.fspath(spec), *_words(overrides))).stdout)


def load(path):
    """The run or sweep in a folder, or the newest one below it."""
    return Run(_done(_call("latest", os.fspath(path))).stdout.strip())


class Run:
    """A run's folder, or a sweep's."""

    def __init__(self, path):
        # The program may change its folder later.
        self.path = Path(path).absolute()

    def __fspath__(self):
        return str(self.path)

    def __repr__(self):
        return f"<runner.Run {self.path}>"

    @cached_property
    def spec(self):
        """The resolved spec."""
        return tomllib.loads((self.path / ("sweep.toml" if self.is_sweep else "spec.toml")).read_text())

    @cached_property
    def environment(self):
        """What it ran on."""
        self._refuse_sweep("environment")
        return tomllib.loads((self.path / "environment.toml").read_text())

    @property
    def is_sweep(self):
        return (self.path / "sweep.csv").is_file()

    @property
    def trials(self):
        """The runs of a sweep that have a folder, in their order."""
        begun = self._folders()
        with open(self.path / "sweep.csv", newline="") as file:
            paths = [self.path / row["folder"] if row["folder"] else begun.get(int(row["trial"])) for row in csv.DictReader(file)]
        return [Run(path) for path in dict.fromkeys(paths) if path is not None and path.is_dir()]

    def _folders(self):
        """The folders of trials by number: the table of a sweep has that of a trial once it ended."""
        named = ((path.name.partition("-")[0], path) for path in self.path.iterdir() if (path / "summary.csv").is_file())
        return {int(number): path for number, path in named if number.isdecimal()}

    @property
    def summary(self):
        """The run in numbers: figures by name, None where one is not known. The status of a run that was killed is "unfinished"."""
        self._refuse_sweep("summary")
        with open(self.path / "summary.csv", newline="") as file:
            row = next(csv.DictReader(file), {})
        # Only the program can tell whether a process is still at work; for moments at its start and end there is no row.
        if row.get("status", "running") == "running":
            row["status"] = json.loads(_done(_call("show", str(self.path), "--json")).stdout)["status"]
        return {name: _value(name, cell) for name, cell in row.items()}

    def _refuse_sweep(self, name):
        if self.is_sweep:
            hint = f"each of its trials has one: `.trials[0].{name}`; `.metrics` has a row for each trial"
            raise FileNotFoundError(f"the sweep `{self.path}` has no {name}; {hint}")

    @property
    def metrics(self):
        """metrics.csv; of a sweep sweep.csv, a row for each trial, "running" or "unfinished" where a planned one has begun."""
        if not self.is_sweep:
            return self.table("metrics.csv")
        table, begun = self.table("sweep.csv"), self._folders()
        states = zip(table["trial"], table["status"], strict=True)
        status = [Run(begun[trial]).summary["status"] if status == "planned" and trial in begun else status for trial, status in states]
        table["status"] = status
        return table

    def table(self, name):
        """A CSV file of the folder: a data frame where pandas is installed, else a dict of lists."""
        with open(self.path / name, newline="", encoding="utf-8-sig") as file:
            return _table(file)

    def refit(self, overrides=(), options=()):
        """The final model as `runner refit` trains it, on the rows that validated, too; of a sweep that of its best setting.

        Overrides and options as for `run`; "--all" trains on the test rows, too. Returns the new run.
        """
        return _begun("refit", self, overrides, options)

    def predict(self, rows, options=(), threshold=None, positive=None, ensemble=False):
        """A prediction for each row, as `runner predict` prints them; of a sweep by its best trial, or with `ensemble` by the mean of
        all models of its best setting.

        `rows`: a pandas or Polars frame or a dict of columns, with the names of the training file; a NumPy array for a model
        of arrays; or the path of a file. `options`: words such as "--keep", "date". Returns a frame of the kind that `rows` is,
        with its index; else a data frame where pandas is installed, or a dict of lists. The column `class` has the names of
        the training file, as integers where all of them are. `threshold`: of two classes `positive`, by default the second, is
        predicted where its probability is at least this. Raises RunnerError with the first row that is wrong.
        """
        place, given = _rows(rows, self._marks)
        if any(word == "-o" or word.startswith("--out") for word in options):
            raise ValueError("the predictions are returned: write them with the frame's own `to_csv`")
        words = ["--ensemble"] if ensemble else []
        return _framed(self._predicted(place, *words, *_decision(threshold, positive), *options, given=given), rows)

    def out_of_fold(self, options=(), threshold=None, positive=None):
        """For each row of a sweep over folds the prediction of the model that did not train on it, and its target: a data frame by
        row numbers where pandas is installed, else a dict of lists with a column `row`. `options`: such as "--last".
        """
        columns = self._predicted("--out-of-fold", *_decision(threshold, positive), *options)
        columns["row"] = list(map(int, columns["row"]))
        for name in (name for name in columns if name.startswith("actual")):
            columns[name] = (_classes(columns) if "class" in columns else _floats)(columns[name])
        frame = _framed(columns, None)
        return frame if frame is columns else frame.set_index("row")

    def _predicted(self, *words, given=None):
        """Columns of `runner predict`."""
        names, *lines = csv.reader(io.StringIO(_done(_call("predict", str(self.path), *words, given=given)).stdout, newline=""))
        columns = dict(zip(names, map(list, zip(*lines, strict=True)) if lines else ([] for _ in names), strict=True))
        # Columns of `--keep` come first, as they are in the table; none is named like one of the program's own.
        own = len(names) - names[::-1].index("class") - 1 if "class" in names else None
        for name in names if own is None else names[own + 1 :]:
            if name.startswith("prediction" if own is None else "p_"):
                columns[name] = _floats(columns[name])
        if own is not None:
            columns["class"] = _classes(names[own + 1 :])(columns["class"])
        return columns

    def evaluate(self, rows=None, labels=None, options=(), threshold=None, positive=None, ensemble=False, out_of_fold=False):
        """The metrics of `runner evaluate --json` by name, None where the rows do not define one; of a sweep by its best trial.
        `["baseline"]["metrics"]` has those of a model without features. `ensemble`: of the mean of all models of a sweep's best
        setting; `["one_model"]` has what one of them reaches. `out_of_fold`: of the rows of a sweep over folds, each by the model that did
        not train on it.

        `rows`: as for `predict`, with the target among the columns; absent, the rows that `data.split.test` kept from the run.
        `labels`: those of an array, an array or a file. `threshold` and `positive`: as for `predict`; `options=["--thresholds"]` adds
        metrics at several thresholds, and "--validation" takes the rows that the run validated with.
        """
        models = [word for word, given in (("--ensemble", ensemble), ("--out-of-fold", out_of_fold)) if given]
        options = [*models, *_decision(threshold, positive), *options]
        place, given = (None, None) if rows is None else _rows(rows, self._marks)
        with tempfile.TemporaryDirectory() as folder:
            if labels is not None:
                file = labels
                if not isinstance(labels, (str, os.PathLike)):
                    file = Path(folder, "labels.npy")
                    file.write_bytes(_npy(labels))
                options = ["--labels", os.fspath(file), *options]
            words = [] if place is None else [place]
            return json.loads(_done(_call("evaluate", str(self.path), *words, "--json", *options, given=given)).stdout)

    @property
    def _marks(self):
        """What separates cells, and decimals, in the training file: new rows have to be written like it."""
        file = self.spec.get("data", {}).get("csv", {})
        return file.get("delimiter", ","), file.get("decimal", ".")

    def weights(self, which="best"):
        """Parameters by name as NumPy arrays: the best ones if the run validated, or the "last"."""
        if which not in ("best", "last"):
            raise ValueError(f'expected "best" or "last", found {which!r}')
        self._refuse_sweep("weights()")
        import numpy

        files = [self.path / "best.safetensors", self.path / "model.safetensors"]
        path = next((file for file in files[which == "last" :] if file.is_file()), None)
        if path is None:
            raise FileNotFoundError(f"`{self.path}` has no weights")
        data = path.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        tensors = json.loads(data[8:start])
        tensors.pop("__metadata__", None)

        def array(tensor):
            begin, end = tensor["data_offsets"]
            values = numpy.frombuffer(data[start + begin : start + end], _KINDS[tensor["dtype"]])
            return values.reshape(tensor["shape"])

        return {name: array(tensor) for name, tensor in tensors.items()}


def _begun(command, path, overrides, options):
    """The run that a command begins."""
    given = next((word for word in options if word in ("--check", "--dry-run")), None)
    if given is not None:
        raise ValueError(f"with `{given}` nothing runs: `runner {command}` takes it in a shell, where it prints its page")
    done = _call(command, "-q", os.fspath(path), *_words(overrides), *options)
    folder = done.stdout.strip()
    run = Run(folder) if folder else None
    if done.returncode != 0:
        raise RunnerError(_message(done), done.returncode, run)
    sys.stderr.write(done.stderr)
    return run


def _decision(threshold, positive):
    """The words for a threshold, and for the class that counts as positive."""
    words = {"--threshold": threshold, "--positive": positive}
    return [f"{option}={value}" for option, value in words.items() if value is not None]


def _table(file):
    """The columns of an open CSV file."""
    try:
        import pandas
    except ImportError:
        columns, *rows = csv.reader(file)
        return {column: [_value(column, row[i]) for row in rows] for i, column in enumerate(columns)}
    return pandas.read_csv(file, dtype=dict.fromkeys(_WORDS, "object"))


def _rows(rows, marks):
    """The word by which the program finds rows, and what it reads from its input, with these marks between cells and decimals."""
    delimiter, decimal = marks
    if isinstance(rows, (str, os.PathLike)):
        return os.fspath(rows), None
    if hasattr(rows, "write_csv"):
        # A line without any text is no row, so a missing cell is written as `""`.
        comma = {} if decimal == "." else {"decimal_comma": True}
        return "-", rows.write_csv(separator=delimiter, quote_style="always", **comma).encode()
    if hasattr(rows, "to_csv"):
        return "-", rows.to_csv(index=False, sep=delimiter, decimal=decimal).encode()
    if isinstance(rows, dict):
        text = io.StringIO(newline="")
        lines = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        lines.writerow(rows)
        columns = [[_cell(value, decimal) for value in column] for column in rows.values()]
        lines.writerows(zip(*columns, strict=True))
        return "-", text.getvalue().encode()
    return "-", _npy(rows)


def _cell(value, decimal):
    is_number = isinstance(value, Real) and not isinstance(value, Integral)
    return str(value).replace(".", decimal) if is_number and decimal != "." else value


def _npy(values):
    """The bytes of an NPY file."""
    import numpy

    array = numpy.asarray(values)
    if array.dtype == object or array.ndim == 0:
        raise TypeError(f"expected a frame, a dict of columns, an array of numbers or the path of a file, found {type(values).__name__}")
    file = io.BytesIO()
    numpy.save(file, array, allow_pickle=False)
    return file.getvalue()


def _floats(cells):
    try:
        return list(map(float, cells))
    except ValueError:
        return cells


def _classes(columns):
    """What makes classes of cells, None where no class is predicted: numbers, if all classes are; they name columns `p_NAME`."""
    names = [name[2:] for name in columns if name.startswith("p_")]
    try:
        are_numbers = all(str(int(name)) == name for name in names)
    except ValueError:
        are_numbers = False
    kind = int if are_numbers else str
    return lambda cells: [kind(cell) if cell else None for cell in cells]


def _framed(columns, rows):
    """Columns as a frame of the kind that `rows` is."""
    if hasattr(rows, "write_csv"):
        return type(rows)(columns)
    try:
        import pandas
    except ImportError:
        return columns
    return pandas.DataFrame(columns, index=rows.index if isinstance(rows, pandas.DataFrame) else None)


def _done(done):
    if done.returncode != 0:
        raise RunnerError(_message(done), done.returncode)
    # A notebook needs the warnings, and which trial of a sweep it is.
    sys.stderr.writelines(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("weights: "))
    return done


def _call(*words, given=None):
    process = subprocess.Popen(
        [program(), *words],
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1"},
    )
    try:
        out, err = process.communicate(given)
    except KeyboardInterrupt:
        # The program saves its rows and ends. In a terminal Ctrl-C has reached it already; it counts both as
        # one.
        process.send_signal(signal.SIGINT)
        process.communicate()
        raise
    except BaseException:
        process.terminate()
        process.communicate()
        raise
    return subprocess.CompletedProcess(words, process.returncode, out.decode(), err.decode(errors="replace"))


def _message(done):
    before, _, message = f"\n{done.stderr.strip()}".partition("\nerror: ")
    return message or before.strip() or f"it ended with exit code {done.returncode}"


def _words(overrides):
    return [_override(key, value) for key, value in overrides.items()] if isinstance(overrides, dict) else overrides


def _override(key, value):
    if value is None:
        return f"~{key}"
    if isinstance(value, dict):
        raise TypeError(f"{key}: name the keys of a table one by one, as `{key}.KEY`")
    return f"{key}={_toml(value)}"


def _toml(value):
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_toml(str(key))} = {_toml(item)}' for key, item in value.items())} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif hasattr(value, "tolist"):
        # NumPy's scalars and arrays.
        return _toml(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    # TOML has no escapes of surrogate pairs, and no plain DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(column, cell):
    if not cell:
        return None
    if column in _WORDS:
        return cell
    if cell in ("true", "false"):
        return cell == "true"
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            pass
    return cell
