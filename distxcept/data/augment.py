"""Random views of training images, drawn from (seed, epoch, sample index) alone.

Pure numpy: the draws of many samples are one vectorised call, and each kind of change has its own stream, so
switching one on does not alter the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxcept.data.keyed import key, uniforms
from distxcept.data.window import Choose, Window, centre_square

_FLIP, _CROP = 1, 2
_CROP_ATTEMPTS = 10


@dataclass(frozen=True)
class View:
    """How one sample is to be looked at in one epoch."""

    choose: Choose
    flip: bool


PLAIN = View(centre_square, False)
"""No augmentation: the largest centred square, as validation sees it."""


def draw_views(augment: Any, *, seed: int, epoch: int, indices: NDArray[np.int64]) -> list[View]:
    """The view of each sample in this epoch; `augment` is the config section, or None for none."""
    if augment is None:
        return [PLAIN] * len(indices)
    flips = (
        uniforms(key(_FLIP, seed, epoch), indices, 1)[:, 0] < 0.5 if augment.flip else [False] * len(indices)
    )
    crops: Callable[[int], Choose]
    if augment.crop is None:
        crops = lambda row: centre_square  # noqa: E731
    else:
        draws = uniforms(key(_CROP, seed, epoch), indices, 2 * _CROP_ATTEMPTS + 2)
        crops = lambda row: _random_window(augment.crop, draws[row])  # noqa: E731
    return [View(crops(row), bool(flips[row])) for row in range(len(indices))]


def _random_window(crop: Any, draws: NDArray[np.float64]) -> Choose:
    """Random resized crop: an area and a side ratio that fit, at a random place.

    Drawn again up to ten times when the window would stick out, then the largest centred window of an allowed
    ratio, so that extreme panoramas still give something sensible.
    """
    low_ratio, high_ratio = crop.ratio
    low_scale, high_scale = crop.scale

    def choose(width: int, height: int) -> Window:
        for attempt in range(_CROP_ATTEMPTS):
            area = width * height * (low_scale + (high_scale - low_scale) * draws[2 * attempt])
            ratio = exp(log(low_ratio) + (log(high_ratio) - log(low_ratio)) * draws[2 * attempt + 1])
            w, h = max(1, round(sqrt(area * ratio))), max(1, round(sqrt(area / ratio)))
            if w <= width and h <= height:
                top, left = int((height - h + 1) * draws[-2]), int((width - w + 1) * draws[-1])
                return Window(top, left, h, w)
        ratio = min(max(width / height, low_ratio), high_ratio)
        w, h = min(width, max(1, round(height * ratio))), min(height, max(1, round(width / ratio)))
        return Window((height - h) // 2, (width - w) // 2, h, w)

    return choose
