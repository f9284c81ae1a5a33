"""PyTorch: tensors shuffled by randperm and indexed, which is faster than a DataLoader. Variant `compile`: the same with
torch.compile on the model; `bf16`: with autocast to bfloat16."""

import time

import torch
from torch import nn

from harness import Trained, run

LOSSES = {"mse": nn.MSELoss, "cross_entropy": nn.CrossEntropyLoss}
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def network(widths):
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Torch:
    def __init__(self, work, data, variant):
        torch.manual_seed(0)
        self.work = work
        self.x, self.y, *self.held_out = map(torch.from_numpy, data)
        self.network = network(work.widths)
        self.forward = torch.compile(self.network) if variant == "compile" else self.network
        self.loss = LOSSES[work.loss]()
        self.autocast = torch.autocast("cpu", torch.bfloat16, enabled=variant == "bf16")

    def train(self, epochs):
        for layer in self.network:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
        optimizer = OPTIMIZERS[self.work.optimizer](self.network.parameters(), lr=self.work.lr)
        result = Trained([])
        for _ in range(epochs):
            for rows in torch.randperm(len(self.x)).split(self.work.batch):
                with self.autocast:
                    loss = self.loss(self.forward(self.x[rows]), self.y[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                result.losses.append(loss.item())
            if self.work.validates:
                self.validate(result)
        return result

    @torch.no_grad()
    def validate(self, result):
        start = time.perf_counter()
        x, y = self.held_out
        result.validation.append(self.loss(self.forward(x), y).item())
        result.validation_s += time.perf_counter() - start


if __name__ == "__main__":
    run(Torch, {"torch": torch.__version__}, ("eager", "compile", "bf16"))
