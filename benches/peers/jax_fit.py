"""JAX with optax. Variant `scan`: an epoch, shuffle and gather included, is one jitted lax.scan. Variant
`step`: one jitted step, fed with numpy batches."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from harness import Trained, run


def parameters(key, widths):
    """Initial parameters as in PyTorch's Linear: uniform in ±1/sqrt(inputs)."""
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        key, weight, bias = jax.random.split(key, 3)
        bound = inputs**-0.5
        layers.append(
            {
                "weight": jax.random.uniform(weight, (inputs, outputs), jnp.float32, -bound, bound),
                "bias": jax.random.uniform(bias, (outputs,), jnp.float32, -bound, bound),
            }
        )
    return layers


def predict(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["weight"] + layer["bias"])
    return x @ layers[-1]["weight"] + layers[-1]["bias"]


class Jax:
    def __init__(self, work, data, variant):
        self.work, self.scans = work, variant == "scan"
        self.optimizer = {"sgd": optax.sgd, "adam": optax.adam}[work.optimizer](work.lr)
        self.x, self.y, *self.held_out = map(jnp.asarray, data) if self.scans else data
        self.step = jax.jit(self._step, donate_argnums=0)
        self.epoch = jax.jit(self._epoch, donate_argnums=0)
        self.evaluate = jax.jit(self._loss)

    def _loss(self, layers, x, y):
        out = predict(layers, x)
        if self.work.loss == "mse":
            return jnp.mean((out - y) ** 2)
        return optax.softmax_cross_entropy_with_integer_labels(out, y).mean()

    def _step(self, state, x, y):
        layers, moments = state
        loss, gradients = jax.value_and_grad(self._loss)(layers, x, y)
        updates, moments = self.optimizer.update(gradients, moments, layers)
        return (optax.apply_updates(layers, updates), moments), loss

    def _epoch(self, state, key, x, y):
        order = jax.random.permutation(key, len(x))
        full = len(x) // self.work.batch * self.work.batch
        body = lambda state, rows: self._step(state, x[rows], y[rows])
        state, losses = jax.lax.scan(body, state, order[:full].reshape(-1, self.work.batch))
        if full < len(x):
            state, loss = body(state, order[full:])
            losses = jnp.append(losses, loss)
        return state, losses

    def train(self, epochs):
        layers = parameters(jax.random.key(0), self.work.widths)
        state = layers, self.optimizer.init(layers)
        random, losses, result = np.random.default_rng(0), [], Trained([])
        for epoch in range(epochs):
            if self.scans:
                state, of_epoch = self.epoch(state, jax.random.key(epoch), self.x, self.y)
                losses.append(of_epoch)
            else:
                order = random.permutation(len(self.x))
                for first in range(0, len(order), self.work.batch):
                    rows = order[first : first + self.work.batch]
                    state, loss = self.step(state, self.x[rows], self.y[rows])
                    losses.append(loss)
            if self.work.validates:
                jax.block_until_ready(state)
                start = time.perf_counter()
                result.validation.append(float(self.evaluate(state[0], *self.held_out)))
                result.validation_s += time.perf_counter() - start
        jax.block_until_ready(state)
        result.losses = np.concatenate([np.ravel(loss) for loss in losses]).tolist()
        return result


if __name__ == "__main__":
    run(Jax, {"jax": jax.__version__, "optax": optax.__version__}, ("scan", "step"))
