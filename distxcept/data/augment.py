"""Random views of training images, drawn from (seed, epoch, sample index) alone.

The draws of many samples are one vectorised call, and each kind of change has its own stream, so switching one on
does not alter the others. Order: crop, flip, affine, RandAugment, colour, erase. MixUp and CutMix need the whole
virtual batch and happen on the device: see `mix.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxcept.data import effects
from distxcept.data.keyed import key, uniforms
from distxcept.data.sources.base import Pixels
from distxcept.data.window import Choose, Window, centre_square

_FLIP, _CROP, _AFFINE, _RANDAUGMENT, _COLOR, _ERASE = range(1, 7)
_CROP_ATTEMPTS = 10

Effect = Callable[[Pixels], Pixels]


@dataclass(frozen=True)
class View:
    """How one sample is to be looked at in one epoch."""

    choose: Choose
    flip: bool = False
    effects: tuple[Effect, ...] = ()


PLAIN = View(centre_square)
"""No augmentation: the largest centred square, as validation sees it."""


def draw_views(augment: Any, *, seed: int, epoch: int, indices: NDArray[np.int64]) -> list[View]:
    """The view of each sample in this epoch; `augment` is the config section, or None for none."""
    if augment is None:
        return [PLAIN] * len(indices)

    def draws(stream: int, count: int) -> NDArray[np.float64]:
        return uniforms(key(stream, seed, epoch), indices, count)

    flips = draws(_FLIP, 1)[:, 0] < 0.5 if augment.flip else np.zeros(len(indices), bool)
    columns = _effect_columns(
        augment, draws, noise_key=lambda row: key(_ERASE, seed, epoch, int(indices[row]))
    )
    # Python's own numbers: one by one they are far quicker than NumPy's.
    crops = draws(_CROP, 2 * _CROP_ATTEMPTS + 2).tolist() if augment.crop is not None else None
    return [
        View(
            centre_square if crops is None else _random_window(augment.crop, crops[row]),
            bool(flips[row]),
            tuple(column(row) for column in columns),
        )
        for row in range(len(indices))
    ]


def _effect_columns(
    augment: Any, draws: Callable[[int, int], NDArray[np.float64]], noise_key: Callable[[int], int]
) -> list[Callable[[int], Effect]]:
    """For each effect that is on, a function from the sample's row to what is to be done."""
    columns: list[Callable[[int], Effect]] = []
    if augment.rotate or augment.shift or augment.shear or augment.zoom:
        moves = draws(_AFFINE, effects.AFFINE_DRAWS)
        columns.append(
            lambda row: lambda x: effects.apply_affine(x, effects.affine_matrix(augment, moves[row]))
        )
    if augment.randaugment is not None:
        picks = draws(_RANDAUGMENT, effects.RANDAUGMENT_DRAWS * augment.randaugment.operations)
        columns.append(lambda row: lambda x: effects.apply_randaugment(x, augment.randaugment, picks[row]))
    if augment.color is not None:
        colors = draws(_COLOR, effects.COLOR_DRAWS)
        columns.append(lambda row: lambda x: effects.apply_color(x, augment.color, colors[row]))
    if augment.erase is not None:
        places = draws(_ERASE, effects.ERASE_DRAWS)
        columns.append(
            lambda row: lambda x: effects.apply_erase(x, augment.erase, places[row], noise_key(row))
        )
    return columns


def _random_window(crop: Any, draws: Sequence[float]) -> Choose:
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
