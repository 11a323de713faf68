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


def centre_window(width: int, height: int, crop: float = 1.0) -> Window:
    """The square in the middle whose side is this part of the shorter side: cut out and scaled to the target."""
    shorter = min(width, height)
    side = min(shorter, max(1, round(crop * shorter)))
    return Window((height - side) // 2, (width - side) // 2, side, side)
