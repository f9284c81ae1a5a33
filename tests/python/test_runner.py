"""Tests of the module `runner` and of the code in docs/python.md. Needs the program (RUNNER_BINARY, or the
installed wheel)."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import unittest
from pathlib import Path

import runner

ROOT = Path(__file__).resolve().parents[2]
SPEC = """
[data.synthetic_regression]
weights = [2.0, -3.4]
bias = 4.2
train_rows = 100
validation_rows = 50
[model]
layers = [{ linear = { out_features = 1 } }]
[optimizer.sgd]
lr = 0.03
[trainer]
max_epochs = 3
"""


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        Path("linreg.toml").write_text(SPEC)

    def test_a_run_with_its_metrics_and_weights(self):
        run = runner.run("linreg.toml", {"trainer.max_epochs": 5, "description": "a, b"})
        self.assertEqual((run.spec["trainer"]["max_epochs"], run.spec["description"]), (5, "a, b"))
        self.assertEqual((run.summary["status"], run.summary["epochs"], run.summary["virtual"]), ("finished", 5, False))
        self.assertEqual(list(run.metrics["split"]).count("validation"), 5)
        self.assertIn("cpu", run.environment)
        self.assertEqual(runner.load("runs").path.resolve(), run.path.resolve())
        try:
            import numpy
        except ImportError:
            return
        weights = run.weights()
        self.assertEqual({name: values.shape for name, values in weights.items()}, {"0.weight": (1, 2), "0.bias": (1,)})
        self.assertTrue(numpy.allclose(weights["0.weight"], [[2.0, -3.4]], atol=1.5))
        self.assertEqual(run.weights("last")["0.bias"].dtype, numpy.float32)

    def test_a_spec_is_resolved_and_not_run(self):
        spec = runner.resolve("linreg.toml", {"trainer.max_epochs": 5})
        self.assertFalse(Path("runs").exists())
        run = runner.run("linreg.toml", {"trainer.max_epochs": 5})
        tables = ("name", "devices", "data", "optimizer", "trainer", "logging")
        self.assertEqual({name: spec[name] for name in tables}, {name: run.spec[name] for name in tables})
        with self.assertRaisesRegex(runner.RunnerError, "unknown key `optimizer.sgd.rate`"):
            runner.resolve("linreg.toml", ["optimizer.sgd.rate=1"])

    def test_a_sweep_has_its_trials(self):
        sweep = runner.run("linreg.toml", ["optimizer.sgd.lr=0.01,0.03"])
        self.assertEqual([trial.spec["optimizer"]["sgd"]["lr"] for trial in sweep.trials], [0.01, 0.03])
        self.assertEqual(list(sweep.metrics["optimizer.sgd.lr"]), [0.01, 0.03])
        same = runner.resolve("linreg.toml", {'sweep.grid."optimizer.sgd.lr"': [0.01, 0.03]})
        self.assertEqual(same["sweep"]["grid"], {"optimizer.sgd.lr": [0.01, 0.03]})
        with self.assertRaisesRegex(runner.RunnerError, "write the override `optimizer.sgd.lr=0.01,0.03`"):
            runner.resolve("linreg.toml", {"optimizer.sgd.lr": [0.01, 0.03]})
        for name in ("summary", "environment"):
            with self.assertRaisesRegex(FileNotFoundError, rf"has no {name}; each of its trials has one: `\.trials\[0\]\.{name}`"):
                getattr(sweep, name)
        with self.assertRaisesRegex(FileNotFoundError, r"has no weights\(\); each of its trials has one: `\.trials\[0\]\.weights\(\)`"):
            sweep.weights()

    def test_a_run_is_found_from_another_folder(self):
        run = runner.run("linreg.toml", options=["--runs-dir", "own"])
        os.mkdir("elsewhere")
        os.chdir("elsewhere")
        self.assertEqual((run.path.is_absolute(), run.summary["status"]), (True, "finished"))

    def test_an_error_is_what_the_program_says(self):
        with self.assertRaises(runner.RunnerError) as raised:
            runner.run("linreg.toml", {"optimizer.sgd.rate": 1})
        self.assertIn("unknown key `optimizer.sgd.rate`", str(raised.exception))
        self.assertEqual((raised.exception.code, raised.exception.run), (2, None))
        with self.assertRaises(runner.RunnerError) as raised:
            runner.run("linreg.toml", {"optimizer.sgd.lr": 1e9, "trainer.max_epochs": 50})
        self.assertEqual((raised.exception.code, raised.exception.run.summary["status"]), (1, "diverged"))
        with self.assertRaises(runner.RunnerError):
            runner.load("nowhere")

    def test_tables_without_pandas(self):
        run = runner.run("linreg.toml")
        sys.modules["pandas"], pandas = None, sys.modules.get("pandas")
        try:
            metrics = run.metrics
        finally:
            del sys.modules["pandas"]
            if pandas is not None:
                sys.modules["pandas"] = pandas
        self.assertEqual((metrics["step"][0], metrics["split"][0]), (1, "train"))
        self.assertIsInstance(metrics["loss"][0], float)

    def test_predictions_of_rows_of_each_kind(self):
        lines = "".join(f"{i},{'ab'[i % 2]},{3 * i + i % 2}\n" for i in range(40))
        Path("rows.csv").write_text("x,kind,y\n" + lines + "\n")
        Path("table.toml").write_text(
            'data.csv = { path = "rows.csv", target = "y", categorical = ["kind"], standardize = true, standardize_target = true }\n'
            "model.layers = [{ linear = { out_features = 1 } }]\n[optimizer.adam]\nlr = 0.1\n[trainer]\nmax_epochs = 60\n"
        )
        run = runner.run("table.toml")
        rows = {"x": [4, 7.5], "kind": ["a", "b"]}
        predicted = run.predict(rows)["prediction"]
        for value, wanted in zip(predicted, [12, 23.5], strict=True):
            self.assertAlmostEqual(value, wanted, delta=0.5)
        self.assertEqual(len(run.predict("rows.csv")["prediction"]), 40)
        metrics = run.evaluate("rows.csv")
        self.assertEqual((metrics["rows"], metrics["baseline"]["metrics"]["r2"]), (40, 0.0))
        kept = run.predict(rows, ["--keep", "kind"])
        self.assertEqual((list(kept), list(kept["kind"])), (["kind", "prediction"], ["a", "b"]))
        with self.assertRaisesRegex(runner.RunnerError, r"^`c` in column `kind` is not a category of the training file\n --> <stdin>:2:3"):
            run.predict({"x": [4], "kind": ["c"]})
        with self.assertRaisesRegex(runner.RunnerError, r"^the predictions have a column `prediction` of their own"):
            run.predict({**rows, "prediction": [1, 2]}, ["--keep", "prediction"])
        with self.assertRaisesRegex(ValueError, "the predictions are returned"):
            run.predict(rows, ["--out", "o.csv"])
        if importlib.util.find_spec("pandas") is not None:
            import pandas

            frame = pandas.DataFrame(rows, index=[8, 3])
            self.assertEqual(list(run.predict(frame).index), [8, 3])
            self.assertEqual(list(run.predict(frame)["prediction"]), list(predicted))
        if importlib.util.find_spec("polars") is not None:
            import polars

            frame = polars.DataFrame(rows, strict=False)
            self.assertEqual(list(run.predict(frame)["prediction"]), list(predicted))

    def test_a_missing_cell_is_a_row_in_each_kind_of_frame(self):
        Path("rows.csv").write_text("x,y\n" + "".join(f"{i},{3 * i}\n" for i in range(40)))
        Path("table.toml").write_text(
            'data.csv = { path = "rows.csv", target = "y", missing = "mean" }\n'
            "model.layers = [{ linear = { out_features = 1 } }]\n[optimizer.sgd]\nlr = 1e-4\n"
        )
        run = runner.run("table.toml")
        frames = [{"x": [1.0, None, 3.0]}]
        for package in ("pandas", "polars"):
            if importlib.util.find_spec(package) is not None:
                frames.append(importlib.import_module(package).DataFrame(frames[0]))
        wanted = None
        for frame in frames:
            predicted = list(run.predict(frame)["prediction"])
            wanted = wanted or predicted
            self.assertEqual((len(predicted), predicted), (3, wanted), type(frame))

    def test_rows_are_written_like_the_training_file(self):
        """Semicolons, and decimals after commas, as European spreadsheets have them."""
        lines = [f"{i / 8};{'ab'[i % 2]};{i % 2 + 0.5}\n" for i in range(40)]
        spec = (
            "model.layers = [{ linear = { out_features = 1 } }]\n[optimizer.adam]\nlr = 0.1\n[data.csv]\n"
            'target = "y"\ncategorical = ["k"]\ndelimiter = ";"\n'
        )
        Path("us.csv").write_text("x;k;y\n" + "".join(lines))
        Path("eu.csv").write_text("x;k;y\n" + "".join(lines).replace(".", ","))
        Path("us.toml").write_text(spec + 'path = "us.csv"\n')
        Path("eu.toml").write_text(spec + 'path = "eu.csv"\ndecimal = ","\n')
        rows = {"x": [0.125, 3], "k": ["a", "b"]}
        frames = [rows]
        for package in ("pandas", "polars"):
            if importlib.util.find_spec(package) is not None:
                frames.append(importlib.import_module(package).DataFrame(rows, **({"strict": False} if package == "polars" else {})))
        runs = [runner.run("us.toml"), runner.run("eu.toml", ["seed=0,1"]).trials[0]]
        wanted = list(runs[0].predict(rows)["prediction"])
        for run in runs:
            for frame in frames:
                self.assertEqual(list(run.predict(frame)["prediction"]), wanted, (run, type(frame)))
        self.assertEqual(runner.load("runs/eu").evaluate({**rows, "y": [0.5, 1.5]})["rows"], 2)

    def test_arrays_and_their_labels(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        arrays = runner.run("linreg.toml")
        x = [[1.0, 2.0], [0.5, 0.25]]
        self.assertEqual(len(arrays.predict(x)["prediction"]), 2)
        targets = numpy.array(arrays.predict(x)["prediction"], dtype="float32")
        self.assertLess(arrays.evaluate(x, targets)["loss"], 1e-10)
        if importlib.util.find_spec("pandas") is not None:
            import pandas

            self.assertLess(arrays.evaluate(x, pandas.Series(targets))["loss"], 1e-10)
        for wrong in (7, [{"x": 1}]):
            with self.assertRaisesRegex(TypeError, "^expected a frame, a dict of columns, an array of numbers or the path of a file"):
                arrays.predict(wrong)

    def test_a_threshold_between_two_classes(self):
        rows = {"x": list(range(40)), "state": ["ill" if x % 5 == 0 else "well" for x in range(40)]}
        Path("states.csv").write_text("x,state\n" + "".join(f"{x},{s}\n" for x, s in zip(*rows.values(), strict=True)))
        data = {"data.synthetic_regression": None, "data.csv.path": "states.csv", "data.csv.target": "state"}
        model = {"model.layers": [{"linear": {"out_features": 2}}], "model.loss": "cross_entropy"}
        run = runner.run("linreg.toml", data | model)
        shares = list(run.predict(rows)["p_ill"])
        threshold = sorted(shares)[20]
        wanted = ["ill" if share >= threshold else "well" for share in shares]
        self.assertEqual(list(run.predict(rows, threshold=threshold, positive="ill")["class"]), wanted)
        metrics = run.evaluate(rows, threshold=threshold, positive="ill")
        self.assertEqual((metrics["threshold"], metrics["positive_class"]), (threshold, "ill"))
        self.assertEqual(sum(row[0] for row in metrics["confusion"]), wanted.count("ill"))
        self.assertIsNone(run.evaluate(rows, options=["--thresholds"]).get("threshold"))
        with self.assertRaisesRegex(runner.RunnerError, "expected a probability above 0 and at most 1, such as 0.3"):
            run.predict(rows, threshold=1.5)

    def test_several_models_of_a_sweep(self):
        lines = "".join(f"{i},{i % 7},{3 * i + i % 7},{'ab'[i % 2]}\n" for i in range(40))
        Path("rows.csv").write_text("x,z,y,state\n" + lines)
        Path("folds.toml").write_text(
            'data.csv = { path = "rows.csv", target = "y", ignore = ["state"], standardize = true, standardize_target = true }\n'
            "model.layers = [{ linear = { out_features = 1 } }]\n[optimizer.adam]\nlr = 0.1\n[trainer]\nmax_epochs = 10\n"
        )
        sweep = runner.run("folds.toml", ["data.folds=4", "data.fold=0..4"])
        rows = {"x": [4, 7.5], "z": [1, 2]}
        alone = [list(trial.predict(rows)["prediction"]) for trial in sweep.trials]
        for value, *all in zip(sweep.predict(rows, ensemble=True)["prediction"], *alone, strict=True):
            self.assertAlmostEqual(value, sum(all) / 4, delta=1e-4)
        metrics = sweep.evaluate("rows.csv", ensemble=True)
        self.assertLessEqual(metrics["rmse"], metrics["one_model"]["rmse"])
        found = sweep.out_of_fold()
        index = list(found.index) if hasattr(found, "index") else found["row"]
        self.assertEqual(index, list(range(40)))
        self.assertEqual(list(found["actual"]), [3 * i + i % 7 for i in range(40)])
        mae = sum(abs(a - b) for a, b in zip(found["prediction"], found["actual"], strict=True)) / 40
        self.assertAlmostEqual(sweep.evaluate(out_of_fold=True)["mae"], mae, delta=1e-4)
        classes = {"data.csv.target": "z", "model.layers": [{"linear": {"out_features": 7}}], "model.loss": "cross_entropy"}
        classes |= {"data.csv.standardize_target": None, "data.folds": 2, "data.fold": 1}
        found = runner.run("folds.toml", classes | {"sweep.grid.seed": [0, 1]}).out_of_fold(["--last"])
        self.assertEqual(list(found["actual"]), [i % 7 for i in (list(found.index) if hasattr(found, "index") else found["row"])])
        with self.assertRaisesRegex(runner.RunnerError, "has one model, and an ensemble is the mean of several"):
            sweep.trials[0].predict(rows, ensemble=True)

    def test_classes_keep_their_names(self):
        # Whichever of them are predicted.
        for names, cells, wanted in [
            (["2", "10"], ["10", ""], [10, None]),
            (["02", "1"], ["1"], ["1"]),
            (["a", "1"], ["1", "1"], ["1", "1"]),
            (["1"], [], []),
        ]:
            self.assertEqual(runner._classes([f"p_{name}" for name in names])(cells), wanted)

    def test_the_blocks_of_the_page(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            self.skipTest("pandas is not installed")
        os.symlink(ROOT / "experiments", "experiments")
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.S)
        if importlib.util.find_spec("wandb") is None:
            print("SKIPPED, without the package wandb: the block of docs/python.md that copies a run to it", file=sys.stderr)
            blocks = [block for block in blocks if "import wandb" not in block]
        # In a process of its own, because packages also run code at exit.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "WANDB_SILENT": "true"}
        done = subprocess.run([sys.executable, "-c", "\n".join(blocks)], env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 unknown key `trainer.max_epoch`", done.stdout)

    def test_a_sweep_is_compared_and_refitted(self):
        sweep = runner.run("linreg.toml", ["optimizer.sgd.lr=1e-5,0.03", "seed=0,1"], options=["-q"])
        settings = runner.compare(sweep, options=["--by", "optimizer.sgd.lr"])
        self.assertEqual((list(settings["optimizer.sgd.lr"]), list(settings["n"])), ([0.03, 1e-5], [2, 2]))
        losses = [trial.summary["best_value"] for trial in sweep.trials if trial.spec["optimizer"]["sgd"]["lr"] == 0.03]
        self.assertAlmostEqual(settings["value"][0], sum(losses) / 2, 12)
        self.assertEqual(len(runner.compare(*sweep.trials)["status"]), 4)
        self.assertEqual(len(runner.compare(sweep.trials)["status"]), 4)
        with self.assertRaisesRegex(ValueError, "`--fail-if` gives no table"):
            runner.compare(sweep, options=["--fail-if", "mean(validation.loss) > 1"])
        with self.assertRaisesRegex(ValueError, "with `--check` nothing runs: `runner refit`"):
            sweep.refit(options=["--check"])
        final = sweep.refit({"trainer.max_epochs": 2})
        found = (final.spec["final_model"], final.spec["optimizer"]["sgd"]["lr"], final.summary["epochs"])
        self.assertEqual(found, (True, 0.03, 2))
        with self.assertRaisesRegex(runner.RunnerError, "nowhere"):
            runner.compare("nowhere")

    def test_a_killed_run_does_not_run_for_ever(self):
        process = subprocess.Popen([runner.program(), "linreg.toml", "trainer.max_epochs=100000000", "-q"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while not list(Path("runs").glob("linreg/*/summary.csv")):
            time.sleep(0.01)
        run = runner.load("runs")
        self.assertEqual(run.summary["status"], "running")
        process.kill()
        process.wait()
        self.assertEqual(run.summary["status"], "unfinished")
        for begun in ["", (run.path / "summary.csv").read_text().splitlines()[0] + "\n"]:
            (run.path / "summary.csv").write_text(begun)
            self.assertEqual(run.summary, {"status": "unfinished"})

    def test_a_killed_sweep_has_the_trial_that_had_begun(self):
        words = ["optimizer.sgd.lr=0.01,0.03", "trainer.max_epochs=100000000"]
        process = subprocess.Popen([runner.program(), "linreg.toml", *words, "-q"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while not list(Path("runs").glob("linreg/*/000-*/summary.csv")):
            time.sleep(0.01)
        sweep = runner.load("runs")
        self.assertEqual(list(sweep.metrics["status"]), ["running", "planned"])
        process.kill()
        process.wait()
        self.assertEqual(list(sweep.metrics["status"]), ["unfinished", "planned"])
        self.assertEqual([trial.spec["optimizer"]["sgd"]["lr"] for trial in sweep.trials], [0.01])

    def test_load_asks_the_program(self):
        Path("own").mkdir()
        Path("own/metrics.csv").write_text("a,b\n")
        with self.assertRaises(runner.RunnerError):
            runner.load("own")

    def test_weights_are_best_or_last(self):
        with self.assertRaises(ValueError):
            runner.Run(".").weights("lsat")

    def test_an_interrupt_ends_a_program_that_prints_much(self):
        program = Path("program")
        program.write_text(
            f"#!{sys.executable}\nimport signal, sys, time\n"
            "def end(*_):\n    print('x' * 1_000_000)\n    sys.exit(130)\n"
            "signal.signal(signal.SIGINT, end)\ntime.sleep(60)\n"
        )
        program.chmod(0o755)
        self.addCleanup(os.environ.update, {"RUNNER_BINARY": os.environ.pop("RUNNER_BINARY", "")})
        os.environ["RUNNER_BINARY"] = str(program.resolve())
        # A process that a shell starts in the background ignores SIGINT.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT]).start()
        begun = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            runner.run("a.toml")
        self.assertLess(time.monotonic() - begun, 30)


class Values(unittest.TestCase):
    def test_overrides_are_toml(self):
        for value in ["é 😀 \x7f \" \\ \n", 1e-8, [1, 0.5], True, 3]:
            self.assertEqual(tomllib.loads(runner._override("a", value))["a"], value)
        self.assertEqual([runner._override("a", float(word)) for word in ("inf", "-inf")], ["a=inf", "a=-inf"])
        self.assertEqual(runner._override("a", Path("b c/d.csv")), 'a="b c/d.csv"')

    def test_layers_are_a_list_of_tables(self):
        layers = [{"linear": {"out_features": 4}}, "relu"]
        self.assertEqual(tomllib.loads(runner._override("model.layers", layers))["model"]["layers"], layers)

    def test_overrides_are_numpys_numbers(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        for value in [numpy.float32(0.5), numpy.int64(3), numpy.bool_(True), numpy.array([1, 2])]:
            self.assertEqual(tomllib.loads(runner._override("a", value))["a"], value.tolist())
        self.assertEqual(runner._override("a", [numpy.float64("inf"), numpy.int8(1)]), "a=[inf, 1]")

    def test_words_stay_words(self):
        self.assertEqual(runner._value("data_digest", "1234e567"), "1234e567")
        self.assertEqual(runner._value("name", "1_0"), "1_0")
        self.assertEqual([runner._value("steps", cell) for cell in ("10", "0.5", "", "true")], [10, 0.5, None, True])


if __name__ == "__main__":
    unittest.main()
