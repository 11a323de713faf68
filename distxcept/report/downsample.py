"""Fewer points that still look the same: of each stretch the lowest and the highest stay. Pure."""

from collections.abc import Sequence

Points = tuple[list[float], list[float | None]]


def downsample(xs: Sequence[float], ys: Sequence[float | None], most: int) -> Points:
    """At most `most` of the points, all of them real ones in their order, the first and the last among them.

    Means would hide the spikes that one looks for.
    """
    if most < 4:
        raise ValueError(f"{most} points are too few")
    if len(xs) <= most:
        return list(xs), list(ys)
    kept = {0, len(xs) - 1}
    stretches = (most - 2) // 2
    for k in range(stretches):
        stretch = range(1 + k * (len(xs) - 2) // stretches, 1 + (k + 1) * (len(xs) - 2) // stretches)
        known = [(value, i) for i in stretch if (value := ys[i]) is not None]
        kept |= {min(known)[1], max(known)[1]} if known else {stretch.start}
    chosen = sorted(kept)
    return [xs[i] for i in chosen], [ys[i] for i in chosen]


def rounded(value: float | None, digits: int = 6) -> float | None:
    """Significant digits: what a reader sees, at a third of the bytes."""
    if value is None:
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
