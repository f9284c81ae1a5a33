"""JAX on a GPU, as its fastest users write it: the rows are on the device, an epoch with its shuffle is one
jitted `lax.scan`, and every step's loss stays on the device until the end. Speaks with its driver as `turns.py` says.

    echo scan | python jax_fit.py JOB --data FOLDER --precision f32     steps per second of one training
    echo vmap | python jax_fit.py JOB --data FOLDER --trials 1000       many trainings at once, by `vmap` over seeds

f32 sets JAX's product precision to `highest`; its default on a GPU is TF32. bf16 casts parameters and
activations, and keeps f32 parameters for the update."""

import argparse
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jobs import JOBS, SWEEPS, paths
from turns import serve

PRODUCTS = {"f32": "highest", "tf32": "tensorfloat32", "bf16": "default"}


def parameters(key, widths):
    """Uniform in ±1/sqrt(inputs), as in PyTorch's Linear."""
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        key, weight, bias = jax.random.split(key, 3)
        draw = partial(jax.random.uniform, dtype=jnp.float32, minval=-(inputs**-0.5), maxval=inputs**-0.5)
        layers.append({"weight": draw(weight, (inputs, outputs)), "bias": draw(bias, (outputs,))})
    return layers


def make_epoch(job, optimizer, precision):
    """One epoch over (state, key, x, y); returns the state and every step's loss."""
    kind = jnp.bfloat16 if precision == "bf16" else jnp.float32

    def loss(layers, x, y):
        layers = jax.tree.map(lambda p: p.astype(kind), layers)
        x = x.astype(kind)
        for layer in layers[:-1]:
            x = jax.nn.relu(x @ layer["weight"] + layer["bias"])
        out = (x @ layers[-1]["weight"] + layers[-1]["bias"]).astype(jnp.float32)
        if job.classes:
            return optax.softmax_cross_entropy_with_integer_labels(out, y).mean()
        return jnp.mean((out - y) ** 2)

    def epoch(state, key, x, y):
        def step(state, rows):
            layers, moments = state
            value, gradients = jax.value_and_grad(loss)(layers, x[rows], y[rows])
            updates, moments = optimizer.update(gradients, moments, layers)
            return (optax.apply_updates(layers, updates), moments), value

        order = jax.random.permutation(key, len(x))
        full = len(x) // job.batch * job.batch
        state, losses = jax.lax.scan(step, state, order[:full].reshape(-1, job.batch))
        if full < len(x):
            state, last = step(state, order[full:])
            losses = jnp.append(losses, last)
        return state, losses

    return epoch


def rate(job, x, y, optimizer, precision, steps):
    """Compiles an epoch, then gives a function that times steps per second of one training."""
    layers = parameters(jax.random.key(0), job.widths)
    epoch = jax.jit(make_epoch(job, optimizer, precision), donate_argnums=0)
    trained = [jax.block_until_ready(epoch((layers, optimizer.init(layers)), jax.random.key(0), x, y))[0]]
    per_epoch = -(-len(x) // job.batch)
    epochs = max(1, round(steps / per_epoch))

    def timed():
        start = time.perf_counter()
        state, losses = trained.pop(), []
        for number in range(epochs):
            state, of_epoch = epoch(state, jax.random.key(number), x, y)
            losses.append(of_epoch)
        kept = np.concatenate([np.asarray(of_epoch) for of_epoch in losses])
        seconds = time.perf_counter() - start
        trained.append(state)
        return {"steps_per_s": len(kept) / seconds, "finite": bool(np.isfinite(kept).all())}

    return timed


def sweep(job, x, y, optimizer, trials):
    """Compiles all trials together, as one `vmap` over seeds of weights and orders; gives a function that times them,
    with every loss copied to the host."""
    epoch = make_epoch(job, optimizer, "f32")

    def trial(seed):
        key = jax.random.key(seed)
        layers = parameters(key, job.widths)
        keys = jax.random.split(key, SWEEPS[job.name].epochs)
        return jax.lax.scan(lambda state, k: epoch(state, k, x, y), (layers, optimizer.init(layers)), keys)[1]

    trained = jax.jit(jax.vmap(trial))
    seeds = jnp.arange(trials)
    np.asarray(trained(seeds))

    def timed():
        start = time.perf_counter()
        losses = np.asarray(trained(seeds))
        return {"wall_s": time.perf_counter() - start, "finite": bool(np.isfinite(losses).all())}

    return timed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--data", required=True)
    parser.add_argument("--precision", choices=PRODUCTS, default="f32")
    parser.add_argument("--steps", type=int, help="fewer than the job says, to see that it works")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    jax.config.update("jax_platforms", args.device)
    jax.config.update("jax_default_matmul_precision", PRODUCTS[args.precision])
    job = JOBS[args.job]
    x, y = (jnp.asarray(np.load(path)) for path in paths(job, args.data))
    optimizer = {"sgd": optax.sgd, "adam": optax.adam}[job.optimizer](job.lr)
    if args.trials:
        variants = {"vmap": lambda: sweep(job, x, y, optimizer, args.trials)}
    else:
        variants = {"scan": lambda: rate(job, x, y, optimizer, args.precision, args.steps or job.rival_steps)}
    serve(variants, {"jax": jax.__version__})


if __name__ == "__main__":
    main()
