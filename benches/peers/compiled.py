"""The rivals in Rust (the crate in rust/): whether they are built, how a job is told to them, how many threads they get."""

import os
import shutil
import subprocess
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "rust"
PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR") or FOLDER / "target") / "release"
BUILD = "cargo build --release --manifest-path benches/peers/rust/Cargo.toml"


def ready(programs):
    """Those that can run, as their sources are now. Says how to build them where they never were: it takes minutes."""
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
    """What is tried: one, and one for each core that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return sorted({1, cores})


def quicker(rates):
    """Of {threads: steps per second} the number of threads with the highest rate; one where nothing was measured."""
    return max(rates, key=rates.get, default=1)
