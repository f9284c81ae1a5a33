"""Linear regression in PyTorch as people write it, timed as a whole process: 10 epochs with validation,
recording every step's loss."""

import sys

import torch
from torch import nn

device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
torch.manual_seed(0)
weights = torch.tensor([[2.0], [-3.4]])


def rows(count):
    x = torch.randn(count, 2)
    return x.to(device), (x @ weights + 4.2 + 0.01 * torch.randn(count, 1)).to(device)


(x, y), (xv, yv) = rows(1000), rows(1000)
model = nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
loss_of = nn.MSELoss()
losses, validation = [], []
for _ in range(10):
    for index in torch.randperm(len(x), device=device).split(32):
        loss = loss_of(model(x[index]), y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    with torch.no_grad():
        validation.append(loss_of(model(xv), yv))
print(torch.stack(losses).cpu()[-1].item(), torch.stack(validation).cpu()[-1].item())
