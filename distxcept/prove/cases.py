"""Which trainings `distxcept prove` runs and compares, and how far apart their weights may be. Pure.

A case is a short training. A job is a process that runs cases one after the other, since a process fixes its devices
once. A pair compares the tensors of two cases; docs/update.md has the guarantees that its bound comes from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from distxcept.prove.machine import Machine

FLOAT64_BOUND, FLOAT32_BOUND, SAME_BITS = 1e-11, 2e-5, 0.0
VIRTUAL = 4
MICRO_STEPS = 4
ONEDNN_OFF = {"TF_ENABLE_ONEDNN_OPTS": "0"}
"""For ordered reductions, as training sets it for them: their guarantee is for TensorFlow's plain kernels."""
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}

Keys = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    name: str
    devices: int
    keys: Keys
    """Config keys with their paths."""

    def config(self) -> dict[str, Any]:
        return nested(self.keys)


@dataclass(frozen=True)
class Job:
    name: str
    cases: tuple[Case, ...]
    devices: int
    ranks: int = 1
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pair:
    id: str
    what: str
    case: str
    reference: str
    bound: float | None
    """None: the difference is measured, and nothing is guaranteed."""
    note: str = ""


def nested(flat: Keys) -> dict[str, Any]:
    """{"a.b": 1} as {"a": {"b": 1}}."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *folders, last = path.split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = value
    return tree


def virtual_batches(devices: int) -> int:
    """Of an update: a multiple of the micro steps, and at least one for each device."""
    return MICRO_STEPS * ceil(devices / MICRO_STEPS)


def base(devices: int, *, quick: bool) -> dict[str, Any]:
    """One device, one micro step, float64. Each update of the quick form is short and padded, so it is traced once."""
    whole = VIRTUAL * virtual_batches(devices)
    return {
        "run.updates": 2 if quick else 4,
        "run.seed": 3,
        "run.log_every": 1,
        "run.telemetry_every": None,
        "run.writers": [],
        "model.image_size": 71,
        "model.width": 0.0625,
        "model.middle_blocks": 0 if quick else 2,
        "model.dropout": 0.3,
        "data.train": {
            "kind": "synthetic",
            "classes": 5,
            "samples": whole - 2 if quick else 2 * whole + VIRTUAL + 2,
        },
        "data.augment": {"flip": True, "crop": {}},
        "batch.global": whole,
        "batch.virtual": VIRTUAL,
        "batch.micro": whole,
        "optimizer.learning_rate": 0.05,
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 0.01,
        "optimizer.ema": 0.9,
        "precision": "float64",
        "engine.threads": 1,
        "checkpoint.every_minutes": None,
        "checkpoint.best_metric": None,
    }


def worlds(devices: int, *, quick: bool) -> list[int]:
    """Numbers of mirrored devices that are tried: 2 to N, above 4 the powers of two; in the quick form N alone."""
    if devices < 2:
        return []
    if quick:
        return [devices]
    return sorted({n for n in range(2, devices + 1) if n <= 4 or n & (n - 1) == 0} | {devices})


def jobs(machine: Machine, *, quick: bool) -> list[Job]:
    count = machine.devices
    plain = base(count, quick=quick)
    split = {**plain, "batch.micro": VIRTUAL}
    float32 = {"precision": "float32", "run.updates": 1, "optimizer.ema": None}
    exact = {**float32, "engine.tf32": "off", "engine.deterministic": "on"} if machine.on_gpu else float32
    ordered = {**split, "precision": "float32", "engine.reduction": "ordered", "engine.lanes": lanes(count)}

    reference = Case("reference", 1, plain)
    several = [Case(f"mirrored{n}", n, split) for n in worlds(count, quick=quick)]
    micro = {**plain, "batch.micro": plain["batch.global"] // MICRO_STEPS}
    one = [reference, Case("micro_steps", 1, micro), Case("again", 1, plain), *several]
    singles = [Case("float32", 1, {**plain, **exact})]
    if machine.on_gpu:
        singles.append(Case("float32_again", 1, {**plain, **exact}))
    if machine.tf32:
        singles.append(Case("tf32", 1, {**plain, **float32, "engine.tf32": "on"}))
    if count > 1:
        singles.append(Case("float32_mirrored", count, {**split, **exact}))
    equal_bits = [Case("ordered", 1, ordered)]
    if machine.on_gpu or not quick or count == 1:
        equal_bits.append(Case("ordered_again", 1, ordered))
    if count > 1:
        equal_bits.append(Case("ordered_mirrored", count, ordered))

    found = [
        Job("float64", tuple(one), count),
        Job("ordered", tuple(equal_bits), count, environ=ONEDNN_OFF),
    ]
    if len(singles) > 1:
        found.append(Job("float32", tuple(singles), count))
    if machine.on_gpu:
        cpu = (Case("cpu", 1, plain), Case("float32_cpu", 1, {**plain, **float32}))
        found.append(Job("cpu", cpu, 1, environ=NO_GPU))
    if count > 1 and machine.no_ranks is None:
        ranks = (Case("horovod", 1, split), Case("ordered_horovod", 1, ordered))
        found.append(Job("horovod", ranks, 1, ranks=count, environ=ONEDNN_OFF))
    return found


def lanes(devices: int) -> int:
    """Partial sums of an ordered reduction: a multiple of the devices."""
    return devices * ceil(MICRO_STEPS / devices)


def pairs(machine: Machine, *, quick: bool) -> list[Pair]:
    count, gpu = machine.devices, machine.on_gpu
    updates = base(count, quick=quick)["run.updates"]
    after = f"float64, {updates} updates"
    free = "kernels of a GPU may differ between runs without engine.deterministic"
    found = [
        Pair("micro_steps", f"1 against {MICRO_STEPS} micro steps, {after}", "micro_steps", "reference", FLOAT64_BOUND),
        Pair(
            "again", f"the same updates twice, {after}", "again", "reference", FLOAT64_BOUND if gpu else SAME_BITS,
            free if gpu else "",
        ),
    ]  # fmt: skip
    found += [
        Pair(
            f"mirrored{n}",
            f"{n} mirrored devices against 1, {after}",
            f"mirrored{n}",
            "reference",
            FLOAT64_BOUND,
        )
        for n in worlds(count, quick=quick)
    ]
    found.append(
        Pair("ordered_again", "ordered, the same updates twice", "ordered_again", "ordered", SAME_BITS)
    )
    if count > 1:
        ordered = f"ordered, {count} mirrored devices against 1"
        found += [
            Pair("ordered_mirrored", ordered, "ordered_mirrored", "ordered", SAME_BITS),
            Pair(
                "float32_mirrored", f"{count} mirrored devices against 1, float32, 1 update", "float32_mirrored",
                "float32", FLOAT32_BOUND, "TF32 off, deterministic" if gpu else "",
            ),
        ]  # fmt: skip
    if count > 1:
        found += [
            Pair("horovod", f"{count} Horovod ranks against 1 device, {after}", "horovod", "reference", FLOAT64_BOUND),
            Pair(
                "ordered_horovod", f"ordered, {count} Horovod ranks against 1 device", "ordered_horovod", "ordered",
                SAME_BITS,
            ),
        ]  # fmt: skip
    if gpu:
        exact = "TF32 off, deterministic"
        found += [
            Pair("cpu", f"GPU against CPU, {after}", "reference", "cpu", FLOAT64_BOUND),
            Pair(
                "float32_again",
                "the same update twice, float32",
                "float32_again",
                "float32",
                SAME_BITS,
                exact,
            ),
            Pair("float32_cpu", "GPU against CPU, float32, 1 update", "float32", "float32_cpu", None, exact),
            Pair(
                "tf32",
                "TF32 on against off, 1 update",
                "tf32",
                "float32",
                None,
                "TF32 rounds inputs to 10 bits",
            ),
        ]
    return found
