"""PyTorch on a GPU: eager, one step captured as a CUDA graph, torch.compile in two modes, and only the
products of a step. Optimizers are the fused ones. Rows are on the device and are indexed there; every step's
loss stays on the device and is copied once, which is the fastest way that PyTorch's users have. Compiling and
tuning happen in the warm-up, which is not timed. Speaks with its driver as `turns.py` says.

    echo graph | python torch_fit.py JOB --data FOLDER --precision f32 --variants graph

With --device cpu it runs without a GPU, only to test this script, and leaves out what needs CUDA graphs."""

import argparse
import ast
import time
from pathlib import Path

import torch
from torch import nn

from jobs import JOBS, paths
from turns import serve

WARM_UP = 20


def load(path, device):
    raw = Path(path).read_bytes()
    length = int.from_bytes(raw[8:10], "little")
    facts = ast.literal_eval(raw[10 : 10 + length].decode())
    kind = {"<f4": torch.float32, "<i8": torch.int64}[facts["descr"]]
    return torch.frombuffer(bytearray(raw[10 + length :]), dtype=kind).reshape(facts["shape"]).to(device)


class Fit:
    """A model with its rows; `step` is one optimizer step on the rows of `index`."""

    def __init__(self, job, folder, precision, device):
        torch.manual_seed(0)
        self.job, self.device = job, device
        self.x, self.y = (load(path, device) for path in paths(job, folder))
        layers = []
        for inputs, outputs in zip(job.widths, job.widths[1:]):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.model = nn.Sequential(*layers[:-1]).to(device)
        self.loss = nn.CrossEntropyLoss() if job.classes else nn.MSELoss()
        self.bf16 = precision == "bf16"
        more = {"fused": True}
        if job.optimizer == "adam" and device == "cuda":
            more["capturable"] = True
        make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[job.optimizer]
        self.optimizer = make(self.model.parameters(), lr=job.lr, **more)

    def step(self, index):
        with torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
            loss = self.loss(self.model(self.x[index]), self.y[index])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def batches(self, steps):
        """Batches of indexes, shuffled anew each epoch. Only whole batches, since a graph has a fixed
        shape."""
        whole = len(self.x) // self.job.batch * self.job.batch
        while steps > 0:
            order = torch.randperm(len(self.x), device=self.device)[:whole]
            for index in order.split(self.job.batch)[:steps]:
                steps -= 1
                yield index

    def synchronize(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def rate(self, step, steps):
        """Warms up, then gives a function that times `steps` steps."""
        for index in self.batches(WARM_UP):
            step(index)
        self.synchronize()

        def timed():
            losses = torch.empty(steps, device=self.device)
            start = time.perf_counter()
            for i, index in enumerate(self.batches(steps)):
                losses[i] = step(index)
            kept = losses.cpu()
            self.synchronize()
            seconds = time.perf_counter() - start
            return {"steps_per_s": steps / seconds, "finite": bool(kept.isfinite().all())}

        return timed


def eager(fit, steps):
    return fit.rate(fit.step, steps)


def compiled(fit, steps):
    fit.model = torch.compile(fit.model, mode="max-autotune-no-cudagraphs" if fit.device == "cuda" else "default")
    return fit.rate(fit.step, steps)


def reduce_overhead(fit, steps):
    """torch.compile with CUDA graphs; each step's loss is copied before the next replay overwrites it."""
    fit.model = torch.compile(fit.model, mode="reduce-overhead")

    def step(index):
        torch.compiler.cudagraph_mark_step_begin()
        return fit.step(index)

    return fit.rate(step, steps)


def graph(fit, steps):
    index = torch.zeros(fit.job.batch, dtype=torch.int64, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for rows in fit.batches(3):
            fit.step(rows)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        loss = fit.step(index)

    def replay(rows):
        index.copy_(rows)
        captured.replay()
        return loss

    return fit.rate(replay, steps)


def products(fit, steps):
    """Only the matrix products of a step, computed by the vendor's library."""
    kind = torch.bfloat16 if fit.bf16 else torch.float32
    new = lambda *shape: torch.randn(*shape, device=fit.device, dtype=kind)
    pairs = []
    for i, (inputs, outputs) in enumerate(zip(fit.job.widths, fit.job.widths[1:])):
        x, w, dy = new(fit.job.batch, inputs), new(inputs, outputs), new(fit.job.batch, outputs)
        pairs += [(x, w), (x.t(), dy)] + ([(dy, w.t())] if i else [])
    out = [a @ b for a, b in pairs]

    def step(_):
        for (a, b), to in zip(pairs, out):
            torch.matmul(a, b, out=to)
        return 0.0

    return fit.rate(step, steps)


VARIANTS = {
    "eager": eager, "graph": graph, "compile": compiled, "reduce-overhead": reduce_overhead, "products": products,
}
ON_GPUS = ("graph", "reduce-overhead")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--precision", choices=("f32", "tf32", "bf16"), default="f32")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, help="fewer than the job says, to see that it works")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    job = JOBS[args.job]
    steps = args.steps or job.rival_steps
    prepare = lambda variant: VARIANTS[variant](Fit(job, args.data, args.precision, args.device), steps)
    names = [name for name in args.variants.split(",") if name not in ON_GPUS or args.device == "cuda"]
    serve({name: (lambda name=name: prepare(name)) for name in names}, {"torch": torch.__version__})


if __name__ == "__main__":
    main()
