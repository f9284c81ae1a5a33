"""Tests of the table and its contenders, without running a rival: python3 -m unittest discover
benches/peers"""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import compiled
import contenders
import table
from workloads import WORKLOADS

FACTS = {
    "cpu": ("a processor", 2, "AVX2"),
    "date": "2026-11-22T12:00:00+00:00",
    "load_before": (0.0, 0.0, 0.0),
    "load_after": (0.0, 0.0, 0.0),
    "others": 0.0,
    "repeats": 1,
    "binary_bytes": 7_000_000,
    "version": "runner 0.1.0",
}


def rate(job, who, steps_per_s, **more):
    return {"kind": "rate", "job": job, "who": who, "steps_per_s": steps_per_s, "final_loss": 0.5, **more}


def ours(job, steps_per_s):
    return rate(job, "ours", steps_per_s, epochs=WORKLOADS[job].epochs[-1], engine="team")


class Table(unittest.TestCase):
    ROWS = [
        ours("W2", 900.0),
        rate("W2", "JAX scan", 600.0),
        rate("W2", "burn", 450.0, threads=2, versions={"burn": "0.22.1"}),
        rate("W2", "dfdx", 300.0, threads=1),
        rate("W2", "gemm loop", 800.0, threads=2),
        {"kind": "threads", "job": "W2", "who": "burn", "steps_per_s": 5000.0, "threads": 1},
    ]
    NAMES = ["JAX scan", "dfdx", "burn", "gemm loop"]

    def test_rivals_in_rust_stand_beside_the_others_with_their_threads(self):
        text = table.render(FACTS, self.ROWS, self.NAMES)
        self.assertIn("| JAX scan | 600 | 1.50 x | 1.00 to 1.00 | 1 | 0.5 |\n", text)
        self.assertIn("| dfdx, 1 thread | 300 | 3.00 x | 1.00 to 1.00 | 1 | 0.5 |\n", text)
        self.assertIn("| burn, 2 threads | 450 | 2.00 x | 1.00 to 1.00 | 1 | 0.5 |\n", text)
        self.assertIn("burn 0.22.1", text.split("###")[0])

    def test_a_loop_by_hand_is_shown_and_is_no_rival(self):
        text = table.render(FACTS, self.ROWS, self.NAMES)
        self.assertIn("| gemm loop, 2 threads (not counted) | 800 | 1.12 x |", text)
        self.assertIn("- **missed**: 1.50 x the best rival of this run, JAX scan (bar 1.6)\n", text)
        self.assertIn(
            "Shown and not counted: gemm loop (a loop by hand, no library that trains).", text.split("###")[0]
        )
        self.assertIn("program: all of these are counted.", table.counted(["JAX scan", "burn"]))
        self.assertIn("scikit-learn in W1 and W4 (updates row by row)", table.counted(["scikit-learn", "gemm loop"]))

    def test_a_rival_in_rust_can_be_the_best(self):
        rows = [ours("W1", 3e6), rate("W1", "JAX scan", 5e4), rate("W1", "dfdx", 3e5, threads=1)]
        text = table.render(FACTS, rows, ["JAX scan", "dfdx"])
        self.assertIn("- reached: 10.00 x the best rival of this run, dfdx (bar 5)\n", text)

    def test_what_failed_is_named(self):
        text = table.render(FACTS, [*self.ROWS, {"kind": "rate", "job": "W2", "who": "candle", "error": "no"}], ["candle"])
        self.assertIn("Failed: candle on W2.", text)


class Programs(unittest.TestCase):
    def test_a_job_is_told_in_words_and_its_line_is_read(self):
        told = {"steps_per_s": 5.0, "threads": 2, "versions": {"dfdx": "0.13.0"}}

        def measure(command, cwd):
            self.command = [str(word) for word in command]
            return {"wall_s": 1.0, "rss_bytes": 7, "stdout": f"noise\n{json.dumps(told)}\n"}

        rival = next(r for r in contenders.RIVALS if r.name == "dfdx")
        row = contenders.measure_rival(measure, "python", rival, WORKLOADS["W5"], Path("there"), 20, 0, 2)
        self.assertEqual(row, {**told, "wall_s": 1.0, "rss_bytes": 7, "epochs": 20})
        words = " ".join(self.command)
        self.assertIn(
            "/dfdx_fit W5 --widths 64,32,10 --loss cross_entropy --optimizer adam --lr 0.001 --batch 32 --validates 0 "
            "--threads 2 --data there --epochs 20 --warm-up 0 --losses /",
            words,
        )

    def test_every_program_has_a_source(self):
        named = {r.program for r in contenders.RIVALS if r.program}
        self.assertEqual(named, {path.stem for path in (HERE / "rust" / "src" / "bin").glob("*.rs")})
        self.assertTrue(all(bool(r.script) != bool(r.program) for r in contenders.RIVALS))

    def test_programs_that_were_never_built_are_left_out_with_one_line(self):
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(compiled, "PROGRAMS", Path(folder)):
            with contextlib.redirect_stdout(said):
                self.assertEqual(compiled.ready(["dfdx_fit", "burn_fit"]), set())
                self.assertEqual(compiled.ready([]), set())
        self.assertEqual(
            said.getvalue(),
            "not built: burn_fit, dfdx_fit (some 7 minutes on 2 cores): "
            "cargo build --release --manifest-path benches/peers/rust/Cargo.toml\n",
        )

    def test_the_quicker_number_of_threads(self):
        self.assertEqual(compiled.quicker({1: 5.0, 2: 7.0}), 2)
        self.assertEqual(compiled.quicker({1: 7.0, 2: 5.0}), 1)
        self.assertEqual(compiled.quicker({}), 1)
        self.assertEqual(compiled.counts_of_threads()[0], 1)


if __name__ == "__main__":
    unittest.main()
