"""MLflow. Where it writes to is its own affair: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from distxcept.report.writers import About

MOST_PARAMETERS = 100
"""That a server takes at once."""
MOST_CHARACTERS = 500


class MlflowWriter:
    def __init__(self, about: About):
        import mlflow

        self._mlflow = mlflow
        self._file = about.folder / "mlflow_run.txt"
        known = self._file.read_text(encoding="utf-8").strip() if self._file.exists() else None
        run = mlflow.start_run(run_id=known, run_name=None if known else about.name)
        self._file.write_text(run.info.run_id + "\n", encoding="utf-8")
        if known is None:
            # MLflow refuses to change a parameter: they are those of the first start.
            pairs = {name: str(value)[:MOST_CHARACTERS] for name, value in about.hyperparameters.items()}
            names = sorted(pairs)
            for first in range(0, len(names), MOST_PARAMETERS):
                mlflow.log_params({name: pairs[name] for name in names[first : first + MOST_PARAMETERS]})

    def scalars(self, part: str, step: int, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics({f"{part}_{name}": value for name, value in values.items()}, step=step)

    def image(self, name: str, step: int, png: bytes, caption: str) -> None:
        from PIL import Image

        self._mlflow.log_image(Image.open(io.BytesIO(png)), f"{name.replace(' ', '_')}_{step}.png")

    def histograms(self, step: int, values: Mapping[str, np.ndarray]) -> None:
        """MLflow has none."""

    def text(self, name: str, step: int, text: str) -> None:
        """MLflow has no log of events; what happened stands in the run folder."""

    def close(self, summary: Mapping[str, Any]) -> None:
        self._mlflow.end_run("FINISHED" if summary else "FAILED")
