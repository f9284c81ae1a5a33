"""The rivals in Rust (the crate in rust/): whether they are built, how they get a job, and how many threads
they use."""

import os
import shutil
import subprocess
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "rust"
PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR") or FOLDER / "target") / "release"
BUILD = "cargo build --release --manifest-path benches/peers/rust/Cargo.toml"


def ready(programs):
    """The rivals that can run, built from the current sources. If they were never built, prints how to; it
    takes minutes."""
    there = {name for name in programs if (PROGRAMS / name).is_file()}
    if there and shutil.which("cargo"):
        command = ["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", FOLDER / "Cargo.toml"]
        if subprocess.run(command).returncode:
            print(f"the rivals in Rust do not build and are left out: {BUILD}")
            return set()
        there = {name for name in programs if (PROGRAMS / name).is_file()}
    if missing := sorted(set(programs) - there):
        print(f"not built: {', '.join(missing)} (some 7 minutes on 2 cores): {BUILD}")
    return there


def command(program, work, threads):
    """The program, the job, and the words that define it."""
    words = {
        "widths": ",".join(map(str, work.widths)),
        "loss": work.loss,
        "optimizer": work.optimizer,
        "lr": work.lr,
        "batch": work.batch,
        "validates": int(work.validates),
        "threads": threads,
    }
    return [PROGRAMS / program, work.name, *(word for key, value in words.items() for word in (f"--{key}", value))]


def counts_of_threads():
    """The thread counts to try: one, and the number of cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return sorted({1, cores})


def quicker(rates):
    """The number of threads with the highest rate in {threads: steps per second}; 1 if nothing was
    measured."""
    return max(rates, key=rates.get, default=1)
