"""Small snapshots to save and to damage."""

from pathlib import Path

import numpy as np

from distxcept.checkpoint.store import Store


def tensors_of(update: int, value: float | None = None) -> dict[str, np.ndarray]:
    return {
        "weights/a": np.full((2, 3), update if value is None else value, np.float32),
        "counters/applied": np.asarray(update, np.int64),
    }


def save(
    run_folder: Path, update: int, *, keep: int = 3, best: bool = False, value: float | None = None
) -> Path:
    state = {"progress": {"update": update}}
    return Store(run_folder).save(update, tensors_of(update, value), state, keep=keep, best=best)
