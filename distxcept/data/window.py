"""Which part of an image is used, in pixels of the upright image."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """A part of the upright image, in pixels."""

    top: int
    left: int
    height: int
    width: int


Choose = Callable[[int, int], Window]
"""From (width, height) of the upright image to the window that is wanted."""


def centre_square(width: int, height: int) -> Window:
    """The largest square in the middle: scaled, it is the image that just covers the target, cut at the centre."""
    side = min(width, height)
    return Window((height - side) // 2, (width - side) // 2, side, side)
