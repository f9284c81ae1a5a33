"""What all rivals share: arguments, an untimed fit first, the clock, the recorded losses, one line of JSON at
the end."""

import argparse
import csv
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from workloads import WORKLOADS, load


@dataclass
class Trained:
    """The results of a fit."""

    losses: list  # one per step, as Python floats
    validation: list = field(default_factory=list)  # one per epoch, if the job validates
    validation_s: float = 0.0
    loop_s: float = None  # the loop alone, if the library reports it; otherwise the whole fit counts


def run(rival, versions, variants=("",)):
    """The main function of a rival. `rival(work, data, variant)` prepares; its `train(epochs)` trains from
    fresh parameters."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--variant", choices=variants, default=variants[0])
    parser.add_argument("--warm-up", type=int, default=1, help="epochs of an untimed fit beforehand")
    parser.add_argument("--losses", type=Path, required=True, help="where every step's loss is written, as csv")
    args = parser.parse_args()

    work = WORKLOADS[args.workload]
    job = rival(work, load(work, args.data), args.variant)
    if args.warm_up:
        job.train(args.warm_up)
    start = time.perf_counter()
    trained = job.train(args.epochs)
    whole = time.perf_counter() - start

    with open(args.losses, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["step", "split", "loss"])
        rows.writerows((i + 1, "train", loss) for i, loss in enumerate(trained.losses))
        rows.writerows((i + 1, "validation", loss) for i, loss in enumerate(trained.validation))
    train_s = (trained.loop_s or whole) - trained.validation_s
    last = trained.losses[-(-(-work.rows // work.batch)) :]
    print(
        json.dumps(
            {
                "steps_per_s": work.steps(args.epochs) / train_s,
                "train_s": train_s,
                "steps": work.steps(args.epochs),
                "losses": len(trained.losses),
                "final_loss": sum(last) / len(last) if last else None,
                "versions": versions,
            }
        )
    )
