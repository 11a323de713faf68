"""The memory estimate against what an update really takes, on CPU.

    python benchmarks/memory.py [--others] [--json]

Each case is a process of its own that runs the real update of the real Xception twice, on random images; what counts is
the largest resident memory during the second run, when everything is traced. TensorFlow's own part is what the same
program takes for the smallest model (the same graph at width 1/16 and 71 px, virtual batches of two), less the few MiB
that this model's tensors need. Allocation is made repeatable: glibc maps every tensor and unmaps it when it is freed;
threads are fixed; oneDNN is off, because its own allocator and copies depend on the processor.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from distxcept.config.optimizer import OptimizerSection
from distxcept.config.schema import Precision
from distxcept.memory.estimate import Estimate, Work, estimate
from distxcept.memory.limit import forget_peak
from distxcept.memory.limit import peak_bytes as measured_peak
from distxcept.model.layout import Layout
from distxcept.prove.race.contestants import STEADY_MALLOC

MIB = 2**20
CLASSES = 1000
THREADS = 2
TOLERANCE = 0.15

ENVIRON = {
    **STEADY_MALLOC,
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "-1",
}
ONE_BY_ONE = dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), str(THREADS))
"""Who sets the threads gets one batch after the other."""


@dataclass(frozen=True)
class Case:
    image_size: int
    micro: int
    width: float
    optimizer: str
    remat: bool = False
    micro_steps: int = 1
    virtual: int = 0
    """0: the micro batch is one virtual batch."""
    precision: Precision = "float32"
    padded: bool = False
    """One sample has weight zero, so that batch norm cannot use the fused kernel."""
    lanes: int = 0
    """Partial sums of an ordered reduction; 0: the fast one."""
    ema: bool = False
    freeze: str | None = None
    middle_blocks: int = 8
    side_by_side: bool = False
    """Two virtual batches of the micro batch at once, a core each; for a machine with two cores."""

    @property
    def virtual_batch(self) -> int:
        return self.virtual or self.micro

    @property
    def note(self) -> str:
        """What is special about it."""
        notes = {
            f"virtual batch {self.virtual}": self.virtual,
            self.precision: self.precision != "float32",
            "padding": self.padded,
            f"{self.lanes} ordered lanes": self.lanes,
            "moving average": self.ema,
            f"{self.freeze} frozen": self.freeze,
            "side by side": self.side_by_side,
        }
        return ", ".join(note for note, given in notes.items() if given)

    @property
    def smallest(self) -> "Case":
        """The same graph with next to no tensors."""
        virtual_batches = self.micro // self.virtual_batch
        return replace(self, image_size=71, width=1 / 16, micro=2 * virtual_batches, virtual=2)

    def optimizer_section(self) -> dict[str, Any]:
        return {"name": self.optimizer, "ema": 0.999 if self.ema else None}

    def work(self) -> Work:
        return Work(
            layout=Layout(classes=CLASSES, width=self.width, middle_blocks=self.middle_blocks),
            image_size=self.image_size,
            micro_batch=self.micro,
            virtual_batch=self.virtual_batch,
            micro_steps=self.micro_steps,
            precision=self.precision,
            optimizer=OptimizerSection(**self.optimizer_section()),
            freeze=self.freeze,
            lanes=self.lanes or None,
            remat=self.remat,
            masked=self.padded,
            device="cpu",
            threads=THREADS,
            side_by_side=2 if self.side_by_side else 1,
        )


CASES = [
    case
    for remat in (False, True)
    for case in (
        Case(96, 1, 0.25, "sgd", remat),
        Case(96, 16, 0.25, "adam", remat),
        Case(299, 1, 0.25, "adam", remat),
        Case(299, 8, 0.25, "sgd", remat),
        Case(128, 4, 0.5, "adam", remat),
        Case(224, 2, 0.5, "sgd", remat),
        Case(192, 16, 0.5, "sgd", remat),
        Case(160, 4, 0.75, "adam", remat),
        Case(128, 1, 1.0, "adam", remat),
        Case(96, 16, 1.0, "sgd", remat),
        Case(299, 1, 1.0, "sgd", remat),
        Case(256, 2, 1.0, "adam", remat),
        Case(299, 4, 1.0, "adam", remat),
        Case(96, 4, 1.0, "sgd", remat, micro_steps=3),
        Case(128, 8, 0.5, "sgd", remat, micro_steps=2, virtual=2),
        Case(299, 16, 1.0, "sgd", remat),
    )
]

OTHERS = [
    Case(128, 8, 0.5, "sgd", padded=True),
    Case(128, 8, 0.5, "sgd", remat=True, padded=True),
    Case(128, 8, 0.5, "sgd", precision="mixed_float16"),
    Case(128, 8, 0.5, "sgd", precision="mixed_float16", padded=True),
    Case(128, 8, 0.5, "lamb", ema=True),
    Case(128, 8, 0.5, "adamw", freeze="block12"),
    Case(128, 4, 0.5, "sgd", micro_steps=4, lanes=4),
    Case(128, 16, 0.5, "sgd", virtual=4),
    Case(128, 16, 0.5, "sgd", virtual=8, side_by_side=True),
    Case(128, 16, 0.5, "sgd", True, virtual=8, side_by_side=True),
    Case(96, 32, 1.0, "adam", micro_steps=2, virtual=16, side_by_side=True),
    Case(299, 16, 1.0, "sgd", virtual=8, side_by_side=True),
]


@dataclass(frozen=True)
class Row:
    case: Case
    estimate: Estimate
    measured_bytes: int
    """Above TensorFlow's own part."""

    @property
    def error(self) -> float:
        return self.estimate.total_bytes / self.measured_bytes - 1


def run_case(case: Case) -> Row:
    return Row(case, estimate(case.work()), peak_bytes(case) - own_bytes(case.smallest))


@cache
def own_bytes(smallest: Case) -> int:
    """TensorFlow's own part: interpreter, libraries, traced graph."""
    return peak_bytes(smallest) - estimate(smallest.work()).total_bytes


def peak_bytes(case: Case) -> int:
    """Of the whole process, measured."""
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(asdict(case))],
        env={**os.environ, **ENVIRON, **({} if case.side_by_side else ONE_BY_ONE), "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{case} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return int(done.stdout)


def child(case: Case) -> None:
    """Runs the case in this process and prints what it took."""
    import numpy as np
    import tensorflow as tf

    from distxcept.config.schema import Config
    from distxcept.engines.devices import prepare_devices
    from distxcept.engines.single import SingleEngine
    from distxcept.training.accumulate import Batch
    from distxcept.training.build import build_training

    samples = case.micro * case.micro_steps
    config = Config.model_validate(
        {
            "model": {
                "image_size": case.image_size,
                "width": case.width,
                "freeze": case.freeze,
                "middle_blocks": case.middle_blocks,
            },
            "data": {"train": {"kind": "synthetic", "samples": CLASSES, "classes": CLASSES}},
            "batch": {"global": samples, "virtual": case.virtual_batch, "micro": case.micro},
            "optimizer": case.optimizer_section(),
            "precision": case.precision,
            "engine": {"reduction": "ordered", "lanes": case.lanes} if case.lanes else {},
            "memory": {"remat": "on" if case.remat else "off"},
        }
    )
    engine = SingleEngine(prepare_devices(1, None)[0])
    training = build_training(config, engine)
    assert training.plan.side_by_side == (2 if case.side_by_side else 1), "it needs two cores"
    shape = (samples // case.virtual_batch, case.virtual_batch)
    pixels = (*shape, case.image_size, case.image_size, 3)
    mask = np.ones(shape, np.float32)
    mask[-1, -1] = 0.0 if case.padded else 1.0
    images = tf.constant(np.random.default_rng(0).integers(0, 256, pixels, np.uint8))
    lanes = tf.constant(training.plan.local_lane_bounds(shape[0], 0), tf.int32)
    batch = Batch(images, tf.zeros(shape, tf.int32), mask, tf.constant(0), lanes)
    for number in range(2):
        forget_peak()
        outcome = training.update([batch], training.plan, key=number, rate=0.001, remat=case.remat)
        assert outcome.applied
    print(measured_peak())


def render(rows: Sequence[Row]) -> str:
    """As a Markdown table."""
    lines = [
        "| px | micro batch | width | optimizer | remat | | measured, MiB | estimated, MiB | error |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        case = row.case
        steps = f" × {case.micro_steps}" if case.micro_steps > 1 else ""
        lines.append(
            f"| {case.image_size} | {case.micro}{steps} | {case.width:g} | {case.optimizer} "
            f"| {'on' if case.remat else 'off'} | {case.note} | {row.measured_bytes / MIB:.0f} "
            f"| {row.estimate.total_bytes / MIB:.0f} | {row.error:+.1%} |"
        )
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    errors = [abs(row.error) for row in rows]
    return {
        "cases": len(rows),
        "largest_error": round(max(errors), 4),
        "median_error": round(statistics.median(errors), 4),
        "own_MiB": {
            f"{row.case.optimizer}{', remat' * row.case.remat}": round(own_bytes(row.case.smallest) / MIB)
            for row in rows
            if row.case.micro_steps == 1
        },
        "reached": max(errors) <= TOLERANCE,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--first", type=int, default=0, metavar="N", help="leave out the cases before this one"
    )
    parser.add_argument("--others", action="store_true", help="the cases of other forms of the update")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        child(Case(**json.loads(args.child)))
        return 0
    rows = []
    for case in (OTHERS if args.others else CASES)[args.first :]:
        rows.append(run_case(case))
        print(render(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    found = summary(rows)
    if args.json:
        each = [
            {**asdict(row.case), "measured": row.measured_bytes, "estimated": row.estimate.total_bytes}
            for row in rows
        ]
        print(json.dumps({**found, "rows": each}, indent=1))
    else:
        print(render(rows))
        print(json.dumps(found))
    return 0 if found["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
