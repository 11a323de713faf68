"""Does memory creep up? A fit over updates that jumps, noise and a filling cache do not deceive."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

BLOCKS = 8
MIN_POINTS = 12 * BLOCKS
"""At the usual 5 seconds a point: eight minutes."""
MAX_POINTS = 4 * MIN_POINTS
MIN_RISE_BYTES = 64 * 2**20
MIN_RISE_SHARE = 0.01
STEADY = 0.5
"""Every part has to rise by at least this much of the average: a jump, or a curve that levels out, does not."""
LOOKS = 3
LOOK_EVERY = 8
"""Points between two looks."""

Point = tuple[int, int]
"""Updates done, bytes held."""


@dataclass(frozen=True)
class Creep:
    bytes_per_update: float
    since_update: int
    rise_bytes: int


def find_creep(points: Sequence[Point]) -> Creep | None:
    """The points are cut into blocks, each known by its medians; all rises from block to block must agree."""
    if len(points) < MIN_POINTS:
        return None
    size = len(points) / BLOCKS
    blocks = [points[round(k * size) : round((k + 1) * size)] for k in range(BLOCKS)]
    updates = [statistics.median(update for update, _ in block) for block in blocks]
    held = [statistics.median(held for _, held in block) for block in blocks]
    rise = held[-1] - held[0]
    if rise < max(MIN_RISE_BYTES, MIN_RISE_SHARE * held[0]):
        return None
    slope = rise / (updates[-1] - updates[0])
    slopes = [(held[k + 1] - held[k]) / (updates[k + 1] - updates[k]) for k in range(BLOCKS - 1)]
    if min(slopes) < STEADY * slope:
        return None
    return Creep(slope, points[0][0], round(rise))


class History:
    """A long stretch of points in little memory: when it is full, it keeps every second one, and takes every second one."""

    def __init__(self) -> None:
        self._points: list[Point] = []
        self._stride = self._skipped = self._seen = 0
        self.clear()

    def clear(self) -> None:
        self._points.clear()
        self._stride, self._skipped, self._seen = 1, 0, 0

    def add(self, update: int, held_bytes: int) -> None:
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        self._points.append((update, held_bytes))
        if len(self._points) == MAX_POINTS:
            del self._points[::2]
            self._stride *= 2

    def look(self) -> Creep | None:
        """Over all of it, or over its later half: a leak may begin in the middle of a run.

        Something that wanders at random looks like a leak now and then, but not at three looks in a row, a few points apart.
        """
        found = find_creep(self._points) or find_creep(self._points[len(self._points) // 2 :])
        self._seen = self._seen + 1 if found else 0
        return found if self._seen >= LOOKS else None
