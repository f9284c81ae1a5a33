"""Describes the machine, and runs and measures one process at a time."""

import os
import platform
import re
import subprocess
import tempfile
import threading
import time
from pathlib import Path


def cpu():
    """Model, cores, vector instructions."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*: (.*)", text)
    flags = set((re.search(r"flags\s*: (.*)", text) or ["", ""])[1].split())
    vectors = next((name for name, flag in (("AVX-512", "avx512f"), ("AVX2", "avx2")) if flag in flags), "")
    return (model[1] if model else platform.processor() or platform.machine()), os.cpu_count(), vectors


def slug():
    model, cores, vectors = cpu()
    words = re.sub(r"\((r|tm)\)|processor|cpu|@.*", "", f"{model} {vectors}", flags=re.I)
    return re.sub(r"[^a-z0-9]+", "-", f"{words} {cores} cores".lower()).strip("-")


class Others:
    """How many cores other processes kept busy since this was created: the machine's busy time minus that of
    our processes."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        if not Path("/proc/stat").exists():
            return time.monotonic(), 0.0
        # user nice system idle iowait irq softirq steal: what is neither idle nor waiting was busy.
        ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
        own = os.times()
        return time.monotonic(), busy - sum(own[:4])

    def load(self):
        end = self.now()
        return max(0.0, (end[1] - self.start[1]) / max(end[0] - self.start[0], 1e-9))


ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "RUNNER_VIRTUAL_GPUS": "",
}


def measure(command, cwd=None, limit=600):
    """Runs a command to its end: seconds from start to end, bytes of memory at its peak, what it printed.

    The peak is reported by the operating system. It includes the pages that the process shared with this
    interpreter before exec, about 15 MB, which is less than any Python process needs."""
    command = [str(word) for word in command]
    env = {k: v for k, v in {**os.environ, **ENVIRONMENT}.items() if k not in ENVIRONMENT or v or k.startswith("CUDA")}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        child = subprocess.Popen(command, cwd=cwd, env=env, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        alarm = threading.Timer(limit, child.kill)
        alarm.start()
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
        alarm.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if child.returncode:
            tail = err.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"exit {child.returncode}: {' '.join(command)}\n{tail}")
        return {"wall_s": wall, "rss_bytes": usage.ru_maxrss * 1024, "stdout": out.read().decode()}
