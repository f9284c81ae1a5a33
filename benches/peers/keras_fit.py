"""Keras: model.fit with verbose=0, on the backend that KERAS_BACKEND names. Callbacks only get the epoch's
running mean; a step's own loss is computed from two successive means."""

import time

import keras

from harness import Trained, run


class Record(keras.callbacks.Callback):
    def __init__(self, work):
        super().__init__()
        self.work, self.result = work, Trained([])

    def on_train_begin(self, logs=None):
        self.start = time.perf_counter()

    def on_train_end(self, logs=None):
        self.result.loop_s = time.perf_counter() - self.start

    def on_epoch_begin(self, epoch, logs=None):
        self.rows, self.total = 0, 0.0

    def on_train_batch_end(self, batch, logs=None):
        rows = min((batch + 1) * self.work.batch, self.work.rows)
        total = float(logs["loss"]) * rows
        self.result.losses.append((total - self.total) / (rows - self.rows))
        self.rows, self.total = rows, total

    def on_test_begin(self, logs=None):
        self.validating = time.perf_counter()

    def on_test_end(self, logs=None):
        self.result.validation_s += time.perf_counter() - self.validating
        self.result.validation.append(float(logs["loss"]))


class Keras:
    def __init__(self, work, data, _variant):
        self.work, self.data = work, data
        hidden = [keras.layers.Dense(width, activation="relu") for width in work.widths[1:-1]]
        layers = [keras.Input((work.widths[0],)), *hidden, keras.layers.Dense(work.widths[-1])]
        self.model = keras.Sequential(layers)
        optimizers = {"sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam}
        loss = "mse" if work.loss == "mse" else keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.model.compile(optimizers[work.optimizer](work.lr), loss)
        self.model.optimizer.build(self.model.trainable_variables)
        variables = self.model.weights + self.model.optimizer.variables
        self.fresh = [(variable, keras.ops.convert_to_numpy(variable).copy()) for variable in variables]

    def train(self, epochs):
        for variable, value in self.fresh:
            variable.assign(value)
        x, y, *held_out = self.data
        record = Record(self.work)
        validation = {"validation_data": tuple(held_out), "validation_batch_size": len(held_out[0])} if held_out else {}
        self.model.fit(x, y, batch_size=self.work.batch, epochs=epochs, verbose=0, callbacks=[record], **validation)
        return record.result


if __name__ == "__main__":
    run(Keras, {"keras": keras.__version__, "backend": keras.backend.backend()})
