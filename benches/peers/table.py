"""Turns measurements into the table, with ratios and required ratios (bars)."""

from statistics import median

from contenders import EVERY, RECORDED, RIVALS, counts
from workloads import WORKLOADS

# What a measurement's line shows: the first of these that exists.
UNITS = (("steps_per_s", "steps/s"), ("ours_gflops", "GFLOP/s"), ("wall_s", "s"))

# Per job: required speed relative to PyTorch eager, and to the best rival.
BARS = {"W1": (250, 5), "W2": (None, 1.6), "W3": (None, 1.1), "W4": (None, 4), "W5": (50, 2.5)}

PROCESS_S, PROCESS_RATIO, PRODUCT_SHARE = 0.025, 140, 0.9

# If other processes kept more than this many cores busy, the figures cannot be trusted.
QUIET = 0.3


class Medians:
    def __init__(self, rows):
        self.rows = [r for r in rows if "error" not in r]

    def values(self, field, **key):
        return [r[field] for r in self.rows if r.get(field) is not None and all(r.get(k) == v for k, v in key.items())]

    def of(self, field, **key):
        found = self.values(field, **key)
        return median(found) if found else None


def lines(head, rows):
    marks = [":--" if i == 0 else "--:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [head, marks, *rows]) + "\n"


def number(x):
    if x is None:
        return ""
    return f"{x:,.0f}" if x >= 1000 else f"{x:.4g}"


def times(a, b):
    return f"{a / b:,.2f} x" if a and b else ""


def verdict(value, bar, text):
    return f"{'reached' if value >= bar else '**missed**'}: {text.format(value)} (bar {bar:g})"


def rates(m, job, names):
    """One job's contenders by rate, and its bars."""
    work = WORKLOADS[job]
    most = max(m.values("epochs", kind="rate", job=job, who="ours"), default=None)
    ours = m.of("steps_per_s", kind="rate", job=job, who="ours", epochs=most)
    if not ours:
        return f"### {job}: {work.title}\n\nNot measured.\n"
    scale = work.flops_per_step / 1e9
    gflops = lambda rate: [number(rate * scale)] if job == "W3" else []
    rows, live = [], {}
    for epochs in sorted(set(m.values("epochs", kind="rate", job=job, who="ours"))):
        key = {"kind": "rate", "job": job, "who": "ours", "epochs": epochs}
        found = m.values("steps_per_s", **key)
        rate = median(found)
        label = f"ours, {epochs} epochs ({m.rows and next(r['engine'] for r in m.rows if r.get('who') == 'ours' and r['job'] == job and 'engine' in r)})"
        rows.append([label, number(rate), *gflops(rate), "", f"{min(found) / rate:.2f} to {max(found) / rate:.2f}", len(found), number(m.of("final_loss", **key))])
    for name in names:
        key = {"kind": "rate", "job": job, "who": name}
        found = m.values("steps_per_s", **key)
        if not found:
            continue
        rate = median(found)
        rival = next(r for r in RIVALS if r.name == name)
        if counts(rival, job):
            live[name] = rate
        label = name
        if threads := m.of("threads", **key):
            label += f", {threads:.0f} thread{'s' if threads > 1 else ''}"
        if not counts(rival, job):
            label += " (not counted)"
        rows.append([label, number(rate), *gflops(rate), times(ours, rate), f"{min(found) / rate:.2f} to {max(found) / rate:.2f}", len(found), number(m.of("final_loss", **key))])
    if ceiling := RECORDED["ceilings"].get(job):
        label = {"W2": "products alone", "W4": "memory's speed"}.get(job, "loop by hand")
        rows.append([f"*{label}, recorded*", number(ceiling), *gflops(ceiling), times(ours, ceiling), "", "", ""])
    head = ["contender", "steps/s", *(["GFLOP/s"] if job == "W3" else []), "ours is", "spread", "n", "final loss"]
    said = [f"- {line}" for line in bars(m, job, ours, live)]
    return f"### {job}: {work.title}\n\n{lines(head, rows)}\n" + "\n".join(said) + "\n"


def bars(m, job, ours, live):
    over_torch, over_best = BARS[job]
    if over_torch and "PyTorch eager" in live:
        yield verdict(ours / live["PyTorch eager"], over_torch, "{:.1f} x PyTorch eager")
    if live:
        best = max(live, key=live.get)
        yield verdict(ours / live[best], over_best, f"{{:.2f}} x the best rival of this run, {best}")
    if job == "W3" and (products := m.of("ours_gflops", kind="products")):
        reached = ours * WORKLOADS[job].flops_per_step / 1e9
        yield verdict(reached / products, PRODUCT_SHARE, f"{{:.3f}} of the product rate of this run, {products:.0f} GFLOP/s")
        yield f"products alone by the `gemm` crate: {m.of('gemm_gflops', kind='products'):.0f} GFLOP/s"


def process(m, names, facts):
    ours = m.of("wall_s", kind="process", who="ours")
    if not ours:
        return ""
    rss = m.of("peak_rss_bytes", kind="process", who="ours")
    rows = [["ours, all files", number(ours * 1e3), "", f"{rss / 1e6:.1f}"]]
    for name in names:
        wall = m.of("wall_s", kind="process", who=name)
        if wall:
            rss = m.of("rss_bytes", kind="process", who=name)
            rows.append([name, number(wall * 1e3), times(wall, ours), f"{rss / 1e6:.0f}"])
    said = [verdict(PROCESS_S / ours, 1, f"{ours * 1e3:.1f} ms, 25 ms over which is {{:.2f}}")]
    if torch := m.of("wall_s", kind="process", who="PyTorch eager"):
        said.append(verdict(torch / ours, PROCESS_RATIO, "{:.0f} x PyTorch eager"))
    said.append(f"`runner --help`: {m.of('wall_s', kind='help') * 1e3:.1f} ms; the program is {facts['binary_bytes'] / 1e6:.2f} MB")
    head = ["contender", "wall ms", "takes", "peak memory MB"]
    title = "### W1, the whole process: 10 epochs with validation and all files\n"
    return f"{title}\n{lines(head, rows)}\n" + "\n".join(f"- {line}" for line in said) + "\n"


def counted(names):
    """Explains which rivals the best one is chosen from."""
    text = "Rivals are libraries that one may train a job with in place of this program"
    rest = [r for r in RIVALS if r.name in names and r.uncounted]
    if not rest:
        return f"{text}: all of these are counted."
    where = lambda r: "" if r.uncounted == EVERY else f" in {' and '.join(r.uncounted.split())}"
    return f"{text}. Shown and not counted: " + "; ".join(f"{r.name}{where(r)} ({r.why})" for r in rest) + "."


def render(facts, rows, names):
    m = Medians(rows)
    model, cores, vectors = facts["cpu"]
    versions = {}
    for row in rows:
        versions.update(row.get("versions") or {})
    noisy = facts["others"] > QUIET
    load = lambda which: " ".join(f"{x:.2f}" for x in facts[which])
    head = [
        f"# Side by side, {facts['date'][:10]}",
        f"{model}, {cores} cores, {vectors}. {facts['version']}; "
        + ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        + f". Medians of {facts['repeats']} rounds, every contender once a round and ours between any two of them.",
        f"Load average before {load('load_before')}, after {load('load_after')}; "
        f"others kept {facts['others']:.2f} cores busy meanwhile.",
    ]
    if noisy:
        head.append("**Noisy: other programs ran beside these; the figures are not to be trusted.**")
    if failed := sorted({f"{r['who']} on {r['job']}" for r in rows if "error" in r}):
        head.append(f"Failed: {', '.join(failed)}.")
    head.append(counted(names))
    head.append(f"Rows in italics were {RECORDED['note']}.")
    jobs = [job for job in WORKLOADS if any(r["job"] == job for r in rows)]
    parts = ["\n\n".join(head) + "\n", *(rates(m, job, names) for job in jobs), process(m, names, facts)]
    return "\n".join(filter(None, parts))
