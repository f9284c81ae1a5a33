"""PyTorch Lightning with its CSVLogger, the loss logged at every step; no bar, checkpoint, summary or sanity check."""

import csv
import logging
import tempfile
import time
import warnings
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

from harness import Trained, run
from torch_eager import LOSSES, OPTIMIZERS, network

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Module(pl.LightningModule):
    def __init__(self, work):
        super().__init__()
        self.work, self.network, self.loss = work, network(work.widths), LOSSES[work.loss]()
        self.validation_s = 0.0

    def training_step(self, batch, _):
        loss = self.loss(self.network(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("validation_loss", self.loss(self.network(batch[0]), batch[1]))

    def configure_optimizers(self):
        return OPTIMIZERS[self.work.optimizer](self.parameters(), lr=self.work.lr)

    def on_train_start(self):
        self.start = time.perf_counter()

    def on_train_end(self):
        self.loop_s = time.perf_counter() - self.start

    def on_validation_start(self):
        self.validating = time.perf_counter()

    def on_validation_end(self):
        self.validation_s += time.perf_counter() - self.validating


class Lightning:
    def __init__(self, work, data, _variant):
        torch.manual_seed(0)
        x, y, *held_out = map(torch.from_numpy, data)
        self.work = work
        self.train_rows = DataLoader(TensorDataset(x, y), work.batch, shuffle=True)
        self.held_out = DataLoader(TensorDataset(*held_out), len(held_out[0])) if held_out else None

    def train(self, epochs):
        module = Module(self.work)
        quiet = ["progress_bar", "checkpointing", "model_summary"]
        with tempfile.TemporaryDirectory() as folder:
            logger = CSVLogger(folder)
            trainer = pl.Trainer(
                max_epochs=epochs,
                accelerator="cpu",
                logger=logger,
                log_every_n_steps=1,
                num_sanity_val_steps=0,
                **{f"enable_{part}": False for part in quiet},
            )
            trainer.fit(module, self.train_rows, self.held_out)
            with open(Path(logger.log_dir) / "metrics.csv") as file:
                rows = list(csv.DictReader(file))
        column = lambda name: [float(row[name]) for row in rows if row.get(name)]
        return Trained(column("train_loss"), column("validation_loss"), module.validation_s, module.loop_s)


if __name__ == "__main__":
    run(Lightning, {"torch": torch.__version__, "lightning": pl.__version__})
