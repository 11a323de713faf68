"""An exported model against the one that it was made from: the same images through both. Pure but for reading images."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxcept.config.schema import Config
from distxcept.data.decode import View, render
from distxcept.data.sources.base import Pixels, Source

Probabilities = NDArray[np.float32]
Model = Callable[[Pixels], Probabilities]

# Largest difference of a probability that is still rounding. int8 has no such bound: there the answers count.
TOLERANCES = {"float32": 1e-3, "float16": 2e-2, "int8": None}
LOST_POINTS = 0.01
"""A quantised model that loses more than this share of right answers is worth a word of warning."""


@dataclass(frozen=True)
class CheckImages:
    images: Pixels
    labels: NDArray[np.int64] | None
    """None where the images are made up."""


@dataclass(frozen=True)
class Comparison:
    images: int
    largest_difference: float
    """Of any probability."""
    agreement: float
    """Share of images with the same most probable class."""
    accuracy_before: float | None
    accuracy_after: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def sentence(self) -> str:
        text = (
            f"{self.images} images through both models: largest difference of a probability "
            f"{self.largest_difference:.2g}, same answer for {self.agreement:.1%}"
        )
        if self.accuracy_before is None:
            return text
        return f"{text}; top-1 {self.accuracy_before:.2%} before, {self.accuracy_after:.2%} after"

    def problem(self, kind: str) -> str | None:
        """Why the export is not the model any more; `kind` is its arithmetic."""
        tolerance = TOLERANCES[kind]
        if not np.isfinite(self.largest_difference):
            return "its probabilities are not finite"
        if tolerance is not None and not self.largest_difference <= tolerance:
            return f"its probabilities differ by up to {self.largest_difference:.3g}, more than rounding ({tolerance:g})"
        return None

    def warning(self) -> str | None:
        if self.accuracy_before is None or self.accuracy_after is None:
            return None
        lost = round(
            self.accuracy_before - self.accuracy_after, 9
        )  # 0.935 - 0.925 is a little more than 0.01
        return f"{lost * 100:.1f} points of top-1 are lost" if lost > LOST_POINTS else None


def compare(before: Probabilities, after: Probabilities, labels: NDArray[np.int64] | None) -> Comparison:
    answers, others = before.argmax(axis=1), after.argmax(axis=1)
    return Comparison(
        images=len(before),
        largest_difference=float(np.max(np.abs(before - after))),
        agreement=float(np.mean(answers == others)),
        accuracy_before=None if labels is None else float(np.mean(answers == labels)),
        accuracy_after=None if labels is None else float(np.mean(others == labels)),
    )


def spread(total: int, wanted: int) -> list[int]:
    """Up to `wanted` numbers below `total`, evenly spread: sources often stand in the order of their classes."""
    count = min(total, wanted)
    return [k * total // count for k in range(count)]


def read_squares(source: Source, wanted: int, config: Config) -> CheckImages:
    """Images spread over the source, as validation sees them; those that cannot be read are left out."""
    image_size, view = config.model.image_size, View.of_evaluation(config.data.evaluate)
    images, labels = [], []
    for index in spread(len(source), wanted):
        out = np.zeros([image_size, image_size, 3], np.uint8)
        try:
            render(source.read(index), view, out, max_pixels=config.data.max_pixels)
        except Exception:  # a bad image is no matter of the export
            continue
        images.append(out)
        labels.append(int(source.labels[index]))
    shape = [len(images), image_size, image_size, 3]
    return CheckImages(np.array(images, np.uint8).reshape(shape), np.array(labels, np.int64))


def made_up_images(count: int, image_size: int) -> CheckImages:
    """Smooth colour fields: enough to tell whether two models are the same, when no data is at hand."""
    chance = np.random.default_rng(0)
    coarse = chance.integers(0, 256, [count, 6, 6, 3])
    at = np.arange(image_size) * 6 // image_size
    return CheckImages(coarse[:, at][:, :, at].astype(np.uint8), None)
