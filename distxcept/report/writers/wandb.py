"""Weights & Biases. Where it writes to and as whom is its own affair: `wandb login`, WANDB_MODE=offline, WANDB_PROJECT."""

import hashlib
import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from distxcept.report.writers import About


class WandbWriter:
    def __init__(self, about: About):
        import wandb

        self._wandb = wandb
        # The same folder is the same run: one that goes on is gone on with there, too.
        identity = hashlib.sha256(str(about.folder.resolve()).encode()).hexdigest()[:16]
        self._run = wandb.init(
            name=about.name,
            id=identity,
            resume="allow",
            dir=str(about.folder),
            config=dict(about.hyperparameters),
        )
        # A run that goes on tells some updates again; by default W&B drops steps that are not larger than the last.
        self._run.define_metric("update")
        self._run.define_metric("*", step_metric="update")

    def scalars(self, part: str, step: int, values: Mapping[str, float]) -> None:
        self._run.log({"update": step, **{f"{part}/{name}": value for name, value in values.items()}})

    def image(self, name: str, step: int, png: bytes, caption: str) -> None:
        from PIL import Image

        picture = self._wandb.Image(Image.open(io.BytesIO(png)), caption=caption)
        self._run.log({"update": step, f"validation/{name}": picture})

    def histograms(self, step: int, values: Mapping[str, np.ndarray]) -> None:
        finite = {name: value[np.isfinite(value)] for name, value in values.items()}
        found = {
            f"weights/{name}": self._wandb.Histogram(value) for name, value in finite.items() if value.size
        }
        self._run.log({"update": step, **found})

    def text(self, name: str, step: int, text: str) -> None:
        """W&B has no log of events; what happened stands in the run folder."""

    def close(self, summary: Mapping[str, Any]) -> None:
        if summary:
            self._run.summary.update({key: value for key, value in summary.items() if value is not None})
        self._run.finish(exit_code=0 if summary else 1)
