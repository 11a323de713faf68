"""What watching costs a training of the real Xception: metrics, logs, TensorBoard, terminal and telemetry together.

    python benchmarks/watching.py [--image-size 128] [--epochs 5] [--json]

A training as `distxcept train` runs it, with everything that is on by default, an evaluation after each epoch. The time in
every call that tells somebody something is added up on the training's thread, the processor time of the telemetry's thread
beside it, and held against the time from the end of the first epoch to the end of the last. Saving is measured by saving.py.
"""

import argparse
import functools
import json
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from distxcept import Trainer
from distxcept.api import Callback
from distxcept.memory.telemetry import Telemetry
from distxcept.training.loop import Loop
from distxcept.training.meter import Meter
from distxcept.training.telling import Tell

BAR = 0.01
WATCHED = {
    Tell: ("updated", "trained", "validated", "happened"),
    Meter: ("add", "take"),
    Loop: ("_tell_telemetry", "_look_for_stragglers"),
}


class Clock(Callback):
    """Seconds by what they were spent on, since the first epoch ended."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self.first = self.last = 0.0
        self._within = False

    def validated(self, record) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last

    def timed(self, of: type, name: str) -> None:
        """On the training's thread."""
        plain, label = getattr(of, name), f"{of.__name__}.{name}"

        @functools.wraps(plain)
        def call(*arguments, **named):
            if self._within:  # counted by the outer call
                return plain(*arguments, **named)
            began, first, self._within = time.perf_counter(), self.first, True
            try:
                return plain(*arguments, **named)
            finally:
                self._within = False
                self._count(label, first, time.perf_counter() - began)

        setattr(of, name, call)

    def timed_aside(self, of: type, name: str) -> None:
        """On a thread of its own, which takes no time from the training's but for the processor."""
        plain, label = getattr(of, name), f"{of.__name__}.{name}"

        @functools.wraps(plain)
        def call(*arguments):
            began, first = time.thread_time(), self.first
            plain(*arguments)
            self._count(label, first, time.thread_time() - began)

        setattr(of, name, call)

    def _count(self, label: str, first: float, seconds: float) -> None:
        if first:
            self.spent[label] += seconds
            self.calls[label] += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--updates", type=int, default=16, help="of an epoch, 16 images each")
    parser.add_argument("--json", metavar="FILE", help="also write the result there")
    args = parser.parse_args()
    data = {"kind": "synthetic", "samples": 16 * args.updates, "classes": 10}
    clock = Clock()
    for of, names in WATCHED.items():
        for name in names:
            clock.timed(of, name)
    clock.timed_aside(Telemetry, "_look")
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "run": {"epochs": args.epochs, "dir": folder},
            "model": {"image_size": args.image_size, "width": args.width},
            "data": {"train": data, "validation": {**data, "samples": 16}},
            "batch": {"global": 16, "virtual": 16, "micro": 16},
            "checkpoint": {"every_minutes": None},
        }
        Trainer(config, callbacks=[clock]).train()
        written = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    seconds, spent = clock.last - clock.first, sum(clock.spent.values())
    if args.json:
        found = {"seconds": seconds, "spent": clock.spent, "share": spent / seconds, "bar": BAR}
        Path(args.json).write_text(json.dumps({"watching": found}, indent=1) + "\n")
    for label, value in sorted(clock.spent.items(), key=lambda one: -one[1]):
        print(f"- {label}: {value * 1e3:.1f} ms in {clock.calls[label]} calls")
    told = f"{spent:.2f} s of {seconds:.1f} s: {spent / seconds:.2%} (bar {BAR:.0%}); {written / 1e6:.0f} MB written"
    print(f"\nWatching: {told}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
