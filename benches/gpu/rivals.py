"""The rivals' processes: all prepare at the same time, then each is timed in its turn. See turns.py."""

import json
import os
import queue
import re
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from jobs import JOBS, SWEEPS

HERE = Path(__file__).resolve().parent
TORCH = ("eager", "graph", "compile", "reduce-overhead", "products")
ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}


class Rival:
    """A process; `who` has its contenders' names by variant."""

    def __init__(self, job, command, who):
        self.job, self.who, self.errors = job, who, tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            env={**os.environ, **ENVIRONMENT},
        )
        self.lines, self.failed = queue.Queue(), {}
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(line)
        self.lines.put(None)

    def line(self, seconds):
        """The next line's row, or an error."""
        try:
            line = self.lines.get(timeout=max(0.1, seconds))
        except queue.Empty:
            self.process.kill()
            return {"error": f"took longer than {seconds:.0f} s"}
        if line is not None:
            return json.loads(line)
        self.errors.seek(0)
        return {"error": f"exit {self.process.wait()}: {self.errors.read()[-300:]}"}

    def prepared(self, seconds):
        row = self.line(seconds)
        self.failed = row.get("failed") or {name: row["error"] for name in self.who if "error" in row}
        return not self.failed

    def timed(self, variant):
        """One turn; a variant that could not be prepared says why."""
        if variant in self.failed:
            return {"error": self.failed[variant]}
        try:
            self.process.stdin.write(variant + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it ended: its output says why
        return self.line(120)


def start(jobs, wanted, device, python, data, quick, has):
    """Starts the rivals whose contenders' names, such as `G4 PyTorch graph bf16`, match `wanted`."""
    few = ["--steps", "20"] if quick else []
    found = []

    def add(job, script, more, who):
        who = {variant: name for variant, name in who.items() if re.search(wanted, f"{job.name} {name}")}
        if who:
            words = [python, HERE / script, job.name, "--data", data, "--device", device, *more]
            if script == "torch_fit.py":
                words += ["--variants", ",".join(who)]
            found.append(Rival(job.name, words, who))

    for job in map(JOBS.get, jobs):
        for precision in job.precisions if device == "cuda" else ("f32",):
            more = ["--precision", precision, *few]
            if has("torch"):
                names = TORCH if device == "cuda" else ("eager", "compile", "products")
                add(job, "torch_fit.py", more, {v: f"PyTorch {v} {precision}" for v in names})
            if has("jax"):
                add(job, "jax_fit.py", more, {"scan": f"JAX scan {precision}"})
        if job.name in SWEEPS and has("jax"):
            trials = 20 if quick else SWEEPS[job.name].trials
            add(job, "jax_fit.py", ["--trials", trials], {"vmap": f"JAX vmap, {trials} trials"})
    return found


def prepare(rivals, seconds):
    """Waits until all are prepared; one that is not in time is ended."""
    begun = time.monotonic()
    fine = [rival.prepared(seconds - (time.monotonic() - begun)) for rival in rivals]
    if rivals:
        took = time.monotonic() - begun
        print(f"{len(rivals)} processes of rivals prepared in {took:.0f} s; {fine.count(False)} failed in part or whole", flush=True)
