"""Where metrics go besides the run folder's own files: TensorBoard, Weights & Biases, MLflow.

A new one is one file here with a class that has the methods of `Writer`, one line in `WRITERS`, and its name in
`run.writers` of the config. Its package is imported when it is opened, never before.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

WRITERS = {
    "tensorboard": "distxcept.report.writers.tensorboard.TensorBoardWriter",
    "wandb": "distxcept.report.writers.wandb.WandbWriter",
    "mlflow": "distxcept.report.writers.mlflow.MlflowWriter",
}


@dataclass(frozen=True)
class About:
    """What a writer may want to know of the run."""

    name: str
    folder: Path
    hyperparameters: Mapping[str, Any]
    """Flat: {"optimizer.learning_rate": 0.1}."""
    updates_done: int = 0
    """By earlier processes of the run."""


class Writer(Protocol):
    """`part` is train or validation; names are those of metrics.jsonl. Everything may raise: the caller copes."""

    def scalars(self, part: str, step: int, values: Mapping[str, float]) -> None: ...

    def image(self, name: str, step: int, png: bytes, caption: str) -> None: ...

    def histograms(self, step: int, values: Mapping[str, np.ndarray]) -> None: ...

    def text(self, name: str, step: int, text: str) -> None: ...

    def close(self, summary: Mapping[str, Any]) -> None:
        """At the end; `summary` is empty where the run did not get that far."""


def open_writer(name: str, about: About) -> Writer:
    """ImportError where its package is not installed."""
    module, _, attribute = WRITERS[name].rpartition(".")
    return getattr(importlib.import_module(module), attribute)(about)
