"""Run folders as a training leaves them, made by hand."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from distxcept.checkpoint.store import Store
from distxcept.cluster.status import RankStatus, own_status, write_status

STARTED = 1_700_000_000.0
CONFIG: dict[str, Any] = {
    "run": {"name": "one", "seed": 3, "updates": 20},
    "optimizer": {"name": "sgd", "learning_rate": 0.1},
    "checkpoint": {"best_metric": "validation_accuracy"},
}


def train_record(update: int, **fields: Any) -> dict[str, Any]:
    return {
        "kind": "train", "epoch": (update - 1) // 10, "update": update, "samples": 32 * update,
        "loss": 2.0 / update, "accuracy": 1 - 1 / update, "learning_rate": 0.1, "gradient_norm": 1.0 + 1 / update,
        "images_per_second": 100.0 + update, "data_wait": 0.01, "peak_memory": 2**30, "skipped_updates": 0, **fields,
    }  # fmt: skip


def validation_record(update: int, accuracy: float, **fields: Any) -> dict[str, Any]:
    return {
        "kind": "validation", "epoch": (update - 1) // 10, "update": update, "samples": 50, "loss": 1 - accuracy,
        "accuracy": accuracy, "top5_accuracy": 1.0, "best": True, **fields,
    }  # fmt: skip


def started(update: int = 0, at: float = STARTED, **fields: Any) -> dict[str, Any]:
    return {
        "kind": "started", "time": at, "total_updates": 20, "updates_per_epoch": 10, "update": update, "samples": 320,
        "classes": 3, "validation_samples": 50, "engine": "single", "replicas": 1, "devices": ["CPU:0"],
        "batch": "global 32 = 1 replica × 32 samples", "memory": "micro batch 16", **fields,
    }  # fmt: skip


def write_lines(path: Path, entries: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def make_run(
    folder: Path,
    *,
    updates: int = 20,
    config: dict[str, Any] = CONFIG,
    metrics: list[dict[str, Any]] | None = None,
    events: list[dict[str, Any]] | None = None,
    status: str | None = "done",
    weights: dict[str, np.ndarray] | None = None,
    **status_fields: Any,
) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "env.json").write_text(
        json.dumps({"distxcept": "0.1", "python": "3.11", "packages": {"tensorflow": "2.21"}, "platform": "Linux",
                    "host": "here", "cpus": 2, "devices": ["CPU:0"], "command": ["distxcept", "train", "a b.yaml"],
                    "started": "2026-01-01T00:00:00+0000", "directory": "/a place", "launcher": "mpirun", "ranks": 4,
                    "settings": {"TF_ENABLE_ONEDNN_OPTS": "1"}})
    )  # fmt: skip
    (folder / "plan.json").write_text(
        json.dumps({"micro_batch": 16, "remat": False, "equation": "32 = 2 × 16"})
    )
    default = [train_record(update) for update in range(1, updates + 1)]
    default += [validation_record(update, update / 40) for update in range(10, updates + 1, 10)]
    write_lines(folder / "metrics.jsonl", default if metrics is None else metrics)
    ended = {"kind": "ended", "time": STARTED + 60, "update": updates, "total_updates": 20, "best": 0.5}
    write_lines(folder / "events.jsonl", [started(), ended] if events is None else events)
    if status:
        fields = {"state": status, "update": updates, "time": time.time(), **status_fields}
        write_status(folder, RankStatus(**{**vars(own_status(0, 1)), **fields}))
    if weights is not None:
        Store(folder).save(updates, {f"weights/{k}": v for k, v in weights.items()}, {}, keep=1)
    return folder
