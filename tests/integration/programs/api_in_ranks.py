"""A script whose work is `Trainer.train()`, as docs/api.md says that mpirun may start it.

python api_in_ranks.py FOLDER NAME        a short training in FOLDER/NAME; who hears of its end says so
"""

import sys

from short_xception import short_xception

from distxcept import Callback, Trainer

CONFIG = {
    "run": {"updates": 4, "log_every": 1, "seed": 3, "telemetry_every": None, "writers": []},
    "model": {"image_size": 71, "width": 0.0625, "dropout": 0.3},
    # The last update of the epoch is short and has padding.
    "data": {"train": {"kind": "synthetic", "samples": 42, "classes": 3}, "augment": {"flip": True}},
    "batch": {"global": 16, "virtual": 4},
    "precision": "float64",
    "optimizer": {"learning_rate": 0.05, "clip_norm": 1.0, "ema": 0.9, "weight_decay": 1e-4},
    "checkpoint": {"every_minutes": None, "best_metric": None},
}


class End(Callback):
    def ended(self, summary):
        print(f"heard of update {summary['update']}")


if __name__ == "__main__":
    folder, name = sys.argv[1:]
    with short_xception():
        run = Trainer(CONFIG, {"run.dir": folder, "run.name": name}, callbacks=[End()], quiet=True).train()
    assert run.finished
