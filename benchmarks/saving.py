"""What a snapshot costs the training of the real Xception: updates with a save in the background against updates without.

    python benchmarks/saving.py [--image-size 128] [--pairs 4] [--updates 6] [--json]

Windows of the same updates are timed by turns, one with a save at its start, one without, so that other work on the
machine touches both alike. The difference is what one save costs; over `--every` seconds between saves it is the share
of the training's time. Weights, momentum and moving average are saved: three numbers a parameter.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from distxcept.cluster import Placement
from distxcept.config.schema import Config
from distxcept.data.dataset import Input
from distxcept.engines import create_engine
from distxcept.training.build import build_training
from distxcept.training.events import Observer
from distxcept.training.loop import Loop

TARGET_SHARE = 0.02


def config_of(image_size: int) -> Config:
    return Config.model_validate(
        {
            "run": {"updates": 100_000},
            "model": {"image_size": image_size, "classes": 1000},
            "data": {"train": {"kind": "synthetic", "samples": 64, "classes": 1000}, "augment": None},
            "batch": {"global": 16, "virtual": 16},
            "optimizer": {"name": "sgd", "momentum": 0.9, "ema": 0.999, "learning_rate": 0.001},
            "checkpoint": {"every_minutes": None, "keep": 2},
        }
    )


class Bench:
    def __init__(self, folder: Path, image_size: int, updates_per_window: int):
        config = config_of(image_size)
        training = build_training(config, create_engine(config.engine, Placement(launcher="local")))
        self.loop = Loop(training, folder, Observer())
        self.updates = updates_per_window
        with Input(training.reading, training.plan, range(1)) as batches:
            self.batch = next(batches)

    def update(self) -> None:
        self.loop.run_update(self.batch)
        self.loop.read_outcome()

    def window(self, *, saving: bool) -> tuple[float, float]:
        """Seconds of the window, and of them the wait for the copy."""
        began = time.perf_counter()
        if saving:
            self.loop.saver.save(self.loop.progress)
        copied = time.perf_counter()
        for _ in range(self.updates):
            self.update()
        ended = time.perf_counter()
        if self.loop.saver.busy:
            raise SystemExit("the snapshot was not written within a window: give more --updates")
        return ended - began, copied - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--updates", type=int, default=6, help="of a window")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between saves")
    parser.add_argument("--folder", help="where to write; a temporary folder if not given")
    parser.add_argument("--json", metavar="FILE", help="also write the result there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        bench = Bench(Path(folder), args.image_size, args.updates)
        for _ in range(2):
            bench.update()
        with_save: list[float] = []
        without: list[float] = []
        copies: list[float] = []
        for number in range(2 * args.pairs):
            saving = number % 4 in (0, 3)  # A B B A: a drift of the machine cancels
            seconds, copy = bench.window(saving=saving)
            (with_save if saving else without).append(seconds)
            copies += [copy] if saving else []
        size = sum(path.stat().st_size for path in next(Path(folder).glob("checkpoints/update-*")).iterdir())
    cost = statistics.mean(with_save) - statistics.mean(without)
    result = {
        "snapshot_mb": size / 1e6,
        "update_seconds": statistics.mean(without) / args.updates,
        "copy_seconds": statistics.mean(copies),
        "cost_seconds_per_save": cost,
        "share": cost / args.every,
        "target": TARGET_SHARE,
        "windows_with_save": with_save,
        "windows_without": without,
    }
    if args.json:
        Path(args.json).write_text(json.dumps({"saving": result}, indent=1) + "\n")
    print("\nSaving:\n")
    for name, value in result.items():
        shown = [round(v, 2) for v in value] if isinstance(value, list) else round(value, 4)
        print(f"- {name.replace('_', ' ')}: {shown}")


if __name__ == "__main__":
    main()
