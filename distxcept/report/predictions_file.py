"""RUN/predictions.json: what came out for the validation images at an evaluation of a run. Fields are public.

    {"format": 1, "update": …, "samples": …, "classes": [name, …],
     "confusion": [[true class, predicted class, samples], …],        counts that are not zero, by class number
     "best": [sample, …], "worst": [sample, …]}                       right with the least loss; those with the most
    sample: {"index", "name", "label", "predicted", "confidence", "loss", "thumbnail"}

`thumbnail` is a data: URL of a small JPEG, or null where the image could not be read again. No TensorFlow at import.
"""

import base64
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distxcept.data.sources.base import Source

FILE = "predictions.json"
SHOWN = 12
THUMBNAIL_PIXELS = 112
ANY_NUMBER = 2**62
"""Of pixels: what has come out of an evaluation was within data.max_pixels."""


class Outcomes(Protocol):
    """One entry for each sample that could be read."""

    @property
    def indices(self) -> NDArray[np.int64]: ...
    @property
    def labels(self) -> NDArray[np.int64]: ...
    @property
    def predicted(self) -> NDArray[np.int64]: ...
    @property
    def confidences(self) -> NDArray[np.float64]: ...
    @property
    def losses(self) -> NDArray[np.float64]: ...


def describe_outcomes(outcomes: Outcomes, source: Source, update: int) -> dict[str, Any]:
    counts = Counter(zip(outcomes.labels.tolist(), outcomes.predicted.tolist(), strict=True))
    # Losses that are no numbers are the worst of all; equal ones in the order of the samples.
    losses = np.where(np.isfinite(outcomes.losses), outcomes.losses, np.inf)
    order = np.lexsort((outcomes.indices, losses))
    right = [int(k) for k in order if outcomes.labels[k] == outcomes.predicted[k]][:SHOWN]
    worst = [int(k) for k in order[::-1][:SHOWN]]
    return {
        "format": 1,
        "update": update,
        "samples": len(outcomes.labels),
        "classes": list(source.class_names),
        "confusion": [[label, predicted, n] for (label, predicted), n in sorted(counts.items())],
        "best": [_sample(outcomes, source, k) for k in right],
        "worst": [_sample(outcomes, source, k) for k in worst],
    }


def _sample(outcomes: Outcomes, source: Source, k: int) -> dict[str, Any]:
    index, loss = int(outcomes.indices[k]), float(outcomes.losses[k])
    confidence = float(outcomes.confidences[k])
    return {
        "index": index,
        "name": source.name(index),
        "label": int(outcomes.labels[k]),
        "predicted": int(outcomes.predicted[k]),
        "confidence": confidence if np.isfinite(confidence) else None,
        "loss": loss if np.isfinite(loss) else None,
        "thumbnail": thumbnail(source, index),
    }


def thumbnail(source: Source, index: int) -> str | None:
    """What the model was shown, smaller, as a data: URL; None where there is no image. No reason for a run to fail."""
    from PIL import Image

    from distxcept.data.decode import View, render

    square, file = np.empty((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS, 3), np.uint8), io.BytesIO()
    try:
        render(source.read(index), View(), square, max_pixels=ANY_NUMBER)
        Image.fromarray(square).save(file, "JPEG", quality=80)
    except Exception:  # decoders raise all sorts of errors
        return None
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def write_outcomes(run_folder: Path, outcomes: Outcomes, source: Source, update: int) -> dict[str, Any]:
    """Writes the file and returns what is in it."""
    found = describe_outcomes(outcomes, source, update)
    path = run_folder / FILE
    scratch = path.with_name(f".{FILE}.writing")
    scratch.write_text(json.dumps(found, allow_nan=False), encoding="utf-8")
    scratch.replace(path)
    return found
