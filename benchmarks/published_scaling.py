"""Why `distxcept plan` predicts no speed for many devices: a forecast fitted on published runs, against other ones.

    python benchmarks/published_scaling.py [--json FILE]

All rows are NVIDIA's own measurements (github.com/NVIDIA/DeepLearningExamples): TensorFlow with Horovod on DGX machines,
real input, the same batch on each GPU. The links of a DGX exchange these gradients within milliseconds, so what is lost
is lost elsewhere: host, input, stragglers.

    seconds of an update = seconds on one device · (1 + a · load · (devices of the node - 1) / 7 + b, with several nodes)

`a` stands for the host that feeds all devices of its node, `b` for waiting between nodes. Both are fitted by least squares
on the marked rows of EfficientNet B4 and B0 on A100, and checked on all others.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

BOUND = 10.0
"""Points of efficiency by which a forecast may miss a row."""

# Sources: the README of each model; the commit that was read.
EFFICIENTNET_V1 = "TensorFlow2/Classification/ConvNets/efficientnet_v1, 077c388"
EFFICIENTNET_V2 = "TensorFlow2/Classification/ConvNets/efficientnet_v2, 115867b"
RESNET50 = "TensorFlow/Classification/ConvNets/resnet50v1.5, 1d4211f"
RESNEXT101 = "TensorFlow/Classification/ConvNets/resnext101-32x4d, 06298be"


@dataclass(frozen=True)
class Machine:
    name: str
    devices: int
    """Of a node."""
    cores: int


DGX_A100 = Machine("DGX A100", 8, 128)
DGX_1 = Machine("DGX-1 V100", 8, 40)
DGX_2 = Machine("DGX-2 V100", 16, 48)


@dataclass(frozen=True)
class Runs:
    """Images a second of one device, and of several."""

    source: str
    model: str
    image_size: int
    machine: Machine
    precision: str
    one: float
    several: dict[int, float]
    fitted: tuple[int, ...] = ()
    """Devices of the rows on which constants are fitted."""


PUBLISHED = [
    Runs(EFFICIENTNET_V1, "EfficientNet B4", 380, DGX_A100, "AMP", 470, {8: 3550, 32: 12908, 64: 25455}, (8, 32, 64)),
    Runs(EFFICIENTNET_V1, "EfficientNet B4", 380, DGX_A100, "TF32", 165, {8: 1308, 32: 4782, 64: 9473}, (8, 64)),
    Runs(EFFICIENTNET_V1, "EfficientNet B4", 380, DGX_1, "AMP", 211, {8: 1258, 32: 4325, 64: 8643}),
    Runs(EFFICIENTNET_V1, "EfficientNet B4", 380, DGX_1, "FP32", 79, {8: 570, 32: 1855, 64: 3568}),
    Runs(EFFICIENTNET_V1, "EfficientNet B0", 224, DGX_A100, "AMP", 3454, {8: 20647, 16: 40644}, (8,)),
    Runs(EFFICIENTNET_V1, "EfficientNet B0", 224, DGX_A100, "TF32", 1209, {8: 9119, 16: 17815}),
    Runs(EFFICIENTNET_V1, "EfficientNet B0", 224, DGX_1, "AMP", 868, {8: 4880, 32: 18424}),
    Runs(EFFICIENTNET_V1, "EfficientNet B0", 224, DGX_1, "FP32", 752, {8: 4504, 32: 15309}),
    Runs(EFFICIENTNET_V2, "EfficientNet v2-S", 300, DGX_A100, "AMP", 950, {8: 6600, 16: 14517, 80: 62130}),
    Runs(EFFICIENTNET_V2, "EfficientNet v2-S", 300, DGX_A100, "TF32", 390, {8: 2800, 16: 5950}),
    Runs(EFFICIENTNET_V2, "EfficientNet v2-S", 300, DGX_1, "AMP", 380, {8: 1774, 16: 3750, 32: 7250, 80: 16039}),
    Runs(EFFICIENTNET_V2, "EfficientNet v2-S", 300, DGX_1, "FP32", 156, {8: 952, 16: 1668, 32: 3270}),
    Runs(RESNET50, "ResNet-50", 224, DGX_A100, "AMP", 2375, {8: 17400}),
    Runs(RESNET50, "ResNet-50", 224, DGX_A100, "TF32", 909, {8: 7000}),
    Runs(RESNET50, "ResNet-50", 224, DGX_1, "AMP", 1270, {8: 9510}),
    Runs(RESNET50, "ResNet-50", 224, DGX_1, "FP32", 412, {8: 3170}),
    Runs(RESNET50, "ResNet-50", 224, DGX_2, "AMP", 1300, {16: 17250}),
    Runs(RESNET50, "ResNet-50", 224, DGX_2, "FP32", 432, {16: 6500}),
    Runs(RESNEXT101, "ResNeXt-101", 224, DGX_A100, "AMP", 1132, {8: 8500}),
    Runs(RESNEXT101, "ResNeXt-101", 224, DGX_A100, "TF32", 371, {8: 2854}),
    Runs(RESNEXT101, "ResNeXt-101", 224, DGX_1, "AMP", 566, {8: 4160}),
    Runs(RESNEXT101, "ResNeXt-101", 224, DGX_1, "FP32", 166, {8: 1210}),
    Runs(RESNEXT101, "ResNeXt-101", 224, DGX_2, "AMP", 572, {16: 7750}),
    Runs(RESNEXT101, "ResNeXt-101", 224, DGX_2, "FP32", 170, {16: 2500}),
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    runs: Runs
    devices: int

    @property
    def efficiency(self) -> float:
        """Measured."""
        return self.runs.several[self.devices] / (self.devices * self.runs.one)

    @property
    def fitted(self) -> bool:
        return self.devices in self.runs.fitted


ROWS = [Row(runs, devices) for runs in PUBLISHED for devices in runs.several]

LOADS: dict[str, Callable[[Runs], float]] = {
    "images/s of a device": lambda runs: runs.one,
    "pixels/s for each core of the host": lambda runs: (
        runs.one * runs.image_size**2 * runs.machine.devices / runs.machine.cores
    ),
}
"""What the host may be loaded with: the first is all that a plan knows."""


@dataclass(frozen=True)
class Check:
    model: str
    machine: str
    precision: str
    devices: int
    images_per_second: float
    """Of one device."""
    measured: float
    forecast: float
    fitted: bool

    @property
    def error(self) -> float:
        """In points of efficiency."""
        return 100 * (self.forecast - self.measured)


def terms(row: Row, load: Callable[[Runs], float]) -> list[float]:
    """What `a` and `b` are multiplied with."""
    node = row.runs.machine.devices
    return [load(row.runs) * (min(row.devices, node) - 1) / 7, float(row.devices > node)]


def fit(rows: list[Row], load: Callable[[Runs], float]) -> np.ndarray:
    """`a` and `b` that bring the efficiencies closest."""
    measured = np.array([row.efficiency for row in rows])
    # A small change of the time changes the efficiency by its square.
    weights = measured**2
    known = np.array([terms(row, load) for row in rows])
    return np.linalg.lstsq(known * weights[:, None], (1 / measured - 1) * weights, rcond=None)[0]


def check(load: Callable[[Runs], float], rows: list[Row] | None = None) -> list[Check]:
    """Every row against the forecast; constants from the marked rows, or from the given ones."""
    constants = fit([row for row in ROWS if row.fitted] if rows is None else rows, load)
    return [
        Check(
            row.runs.model, row.runs.machine.name, row.runs.precision, row.devices, row.runs.one,
            row.efficiency, float(1 / (1 + np.dot(terms(row, load), constants))), row.fitted,
        )
        for row in ROWS
    ]  # fmt: skip


def worst(checks: list[Check], *, fitted: bool) -> float:
    return max(abs(one.error) for one in checks if one.fitted == fitted)


def show(name: str, checks: list[Check]) -> None:
    print(f"\n### Load of the host: {name}\n")
    print("| | devices | images/s of one | measured | forecast | error, points |\n|---|---|---|---|---|---|")
    for one in checks:
        print(
            f"| {one.model}, {one.machine}, {one.precision}{', fitted' * one.fitted} | {one.devices} "
            f"| {one.images_per_second:g} | {one.measured:.1%} | {one.forecast:.1%} | {one.error:+.1f} |"
        )
    others = [one for one in checks if not one.fitted]
    missed = sum(abs(one.error) > BOUND for one in others)
    print(
        f"\n- fitted rows: within {worst(checks, fitted=True):.1f} points; others: up to "
        f"{worst(checks, fitted=False):.1f}, {missed} of {len(others)} off by more than {BOUND:.0f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    found = {}
    for name, load in LOADS.items():
        found[name] = check(load)
        show(name, found[name])
        everything = check(load, ROWS)
        most = max(abs(one.error) for one in everything)
        print(f"- constants fitted on all rows: still off by up to {most:.1f} points")
    if args.json:
        result = {
            name: [{**asdict(one), "error": one.error} for one in checks] for name, checks in found.items()
        }
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
