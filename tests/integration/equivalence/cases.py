"""Which runs are compared: engine × micro batch × feature, pairwise for every day and whole for the soak. Pure.

Every run is the same three updates (or five) over an epoch end, on another engine or in other micro steps than its
reference, which is one device and one micro step for the whole update.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

GLOBAL, VIRTUAL = 24, 4
EVEN_SAMPLES = 2 * GLOBAL
SHORT_SAMPLES = GLOBAL + 6
"""The second update of an epoch has two virtual batches, the last of them half padding: of three replicas one has none."""
LESS_THAN_AN_UPDATE = GLOBAL - 2
"""Every epoch is one short update: an epoch end after each, and one trace instead of two."""
CLIP_NORM = 0.05
"""Far below the gradient's norm in these runs, so that clipping happens."""

ENGINES = {"single": 1, "mirrored2": 2, "mirrored3": 3, "horovod2": 2, "horovod3": 3}
"""Name of an engine and the number of its replicas."""
MICROS = {"virtual": VIRTUAL, "double": 2 * VIRTUAL, "whole": GLOBAL}
SHARES = {1: [1], 2: [2, 1], 3: [2, 1, 1]}

Overrides = Mapping[str, Any]
FEATURES: dict[str, Overrides] = {
    "momentum": {"optimizer.momentum": 0.9},
    "adam": {"optimizer.name": "adam", "optimizer.learning_rate": 0.002},
    "clip_norm": {"optimizer.clip_norm": CLIP_NORM},
    "ema": {"optimizer.ema": 0.9},
    "weight_decay": {"optimizer.weight_decay": 0.01},
    "pruning": {"optimizer.pruning": {"final_sparsity": 0.6, "end_update": 2, "every_updates": 2}},
    "frozen_backbone": {"model.freeze": "backbone"},
    "frozen_to_block": {"model.freeze": "block2"},
    "dropout": {"model.dropout": 0.5},
    "augmentation": {"data.augment": {"flip": True, "crop": {}}},
    "short_last_update": {"data.train.samples": SHORT_SAMPLES},
    "short_updates_only": {"data.train.samples": LESS_THAN_AN_UPDATE},
    "shares": {"engine.shares": SHARES},
}

# Clipping and Adam hide a gradient that is wrong by a factor, so not every group may have one of them.
GROUPS: list[tuple[str, ...]] = [
    ("momentum", "weight_decay", "ema", "dropout", "pruning", "shares", "short_updates_only"),
    ("adam", "clip_norm", "ema", "augmentation", "frozen_to_block", "short_updates_only"),
    ("frozen_backbone", "dropout", "augmentation", "shares", "short_last_update"),
]
"""Features that one everyday run has at once."""


@dataclass(frozen=True)
class Case:
    engine: str
    micro: str
    features: tuple[str, ...] = ()
    precision: str = "float64"
    updates: int = 3
    extra: tuple[tuple[str, Any], ...] = ()
    """Further config keys."""
    control: str = ""
    """A deliberate mistake, by which the comparison shows that it can fail."""
    starved: tuple[tuple[int, int], ...] = ()
    """(update, rank): a rank that has too little memory at its first try of an update."""
    late: bool = False
    """It has so only at the end of the backward pass, and only as if."""
    as_gpu: bool = False
    """The model is built as for a GPU, on a CPU."""

    @property
    def name(self) -> str:
        more = [f"{key.split('.')[-1]}={value}" for key, value in self.extra]
        parts = [
            self.engine,
            self.micro,
            *self.features,
            self.precision,
            f"u{self.updates}",
            *more,
            self.control,
            "as_gpu" * self.as_gpu,
            *(f"{'late' if self.late else 'starved'}{update}r{rank}" for update, rank in self.starved),
        ]
        return "-".join(part for part in parts if part)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Case":
        extra = tuple((key, value) for key, value in fields["extra"])
        starved = tuple((update, rank) for update, rank in fields["starved"])
        return cls(**{**fields, "features": tuple(fields["features"]), "extra": extra, "starved": starved})

    @property
    def padded(self) -> bool:
        """It has one update, which is short."""
        return ("data.train.samples", SHORT_SAMPLES - GLOBAL) in self.extra

    @property
    def reference(self) -> "Case":
        """The same training on one device, with nothing of the engine's own."""
        training = tuple((key, value) for key, value in self.extra if not key.startswith("engine."))
        return Case("single", "whole", self.features, self.precision, self.updates, training)

    @property
    def compared(self) -> bool:
        """Whether there is a reference to compare with: not for itself, and the ordered reduction is its own."""
        return self != self.reference and ("engine.reduction", "ordered") not in self.extra

    def config(self) -> dict[str, Any]:
        flat: dict[str, Any] = {
            "run.updates": self.updates,
            "run.seed": 3,
            "run.log_every": 1,
            "model.image_size": 71,
            "model.width": 0.0625,
            "model.dropout": 0.0,
            "data.train": {"kind": "synthetic", "classes": 5, "samples": EVEN_SAMPLES},
            "data.augment": None,
            "batch.global": GLOBAL,
            "batch.virtual": VIRTUAL,
            "batch.micro": MICROS[self.micro],
            "optimizer.learning_rate": 0.05,
            "optimizer.momentum": 0.0,
            "precision": self.precision,
            "engine.overlap": "off",
            # Whole is one batch; else a process with several cores computes parts of a micro step side by side.
            "engine.threads": 2 if self.micro == "whole" else None,
            "checkpoint.every_minutes": None,
        }
        for feature in self.features:
            flat |= FEATURES[feature]
        if "engine.shares" in flat:
            flat["engine.shares"] = SHARES[ENGINES[self.engine]]
        return nested(flat | dict(self.extra))


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{"a.b": 1} as {"a": {"b": 1}}."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *folders, last = path.split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = dict(value) if isinstance(value, Mapping) else value
    return tree


def updates_of(features: tuple[str, ...]) -> int:
    """A rank without work has to be without work twice: what TensorFlow folds away is there the first time."""
    return 5 if "short_last_update" in features else 3


def everyday() -> list[Case]:
    """Every pair of values of the three axes, with several features in a run."""
    micros = list(MICROS)
    return [
        Case(engine, micros[(e + g) % len(micros)], group, updates=updates_of(group))
        for e, engine in enumerate(ENGINES)
        for g, group in enumerate(GROUPS)
    ]


def whole() -> list[Case]:
    """The whole matrix, one feature a run."""
    return [
        Case(engine, micro, (feature,), updates=updates_of((feature,)))
        for engine in ENGINES
        for micro in MICROS
        for feature in FEATURES
    ]


def overlapped(
    engines: tuple[str, ...], micros: tuple[str, ...], last: str = "short_last_update"
) -> list[Case]:
    """With several ranks the gradients may leave while the last micro step still runs."""
    overlap = (("engine.overlap", "on"),)
    features = ("momentum", "weight_decay", "dropout", last)
    return [
        Case(engine, micro, features, updates=updates_of(features), extra=overlap)
        for engine in engines
        for micro in micros
    ]


def as_on_a_gpu(
    engines: tuple[str, ...] = ("single", "mirrored2"), micros: tuple[str, ...] = ("double",)
) -> list[Case]:
    """With the operations that a GPU gets; the reference has those of a CPU."""
    return [
        Case(engine, micro, GROUPS[0], updates=updates_of(GROUPS[0]), as_gpu=True)
        for engine in engines
        for micro in micros
    ]


def in_float32(micros_of: Mapping[str, tuple[str, ...]], *, padded: bool) -> list[Case]:
    """One plain SGD update; with `padded` a short one, whose padding only some of the replicas see."""
    few = (("data.train.samples", SHORT_SAMPLES - GLOBAL),) if padded else ()
    return [
        Case(engine, micro, (), "float32", 1, few) for engine, micros in micros_of.items() for micro in micros
    ]


def differences(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Of each tensor max|difference| / max|value|."""
    assert ours.keys() == theirs.keys()
    return {name: _difference(ours[name], theirs[name]) for name in ours}


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    largest = float(np.max(np.abs(theirs)))
    return float(np.max(np.abs(ours - theirs))) / (largest or 1.0)
