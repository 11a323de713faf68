"""Whether the input holds up the training, which stage is slow, and what would help: one sentence."""

from collections.abc import Mapping
from dataclasses import dataclass

from distxcept.config.size import show_size

NOTICEABLE = 0.1
"""Share of the time spent waiting for data from which on it is worth a sentence."""


@dataclass(frozen=True, kw_only=True)
class InputStats:
    """What was measured in an epoch."""

    wait_share: float
    """Of the time, in which the training waited for data."""
    stage_seconds: Mapping[str, float]
    """Of a sample in each stage of the pipeline: read, decode."""
    pixels: float
    """Of a stored image, on average."""
    image_size: int
    samples: int
    cached: bool
    free_bytes: int


def advice(stats: InputStats) -> str | None:
    """A sentence for the end of an epoch if the input is the bottleneck; None if it is not."""
    if stats.wait_share < NOTICEABLE or not stats.stage_seconds:
        return None
    slow = max(stats.stage_seconds, key=lambda stage: stats.stage_seconds[stage])
    times = ", ".join(f"{stage} {1000 * seconds:.1f} ms" for stage, seconds in stats.stage_seconds.items())
    found = (
        f"the training waited {stats.wait_share:.0%} of the time for data; the slowest stage is {slow} "
        f"(for each image: {times})"
    )
    return f"{found}: {_remedy(slow, stats)}"


def _remedy(slow: str, stats: InputStats) -> str:
    if slow == "read":
        if stats.cached:
            return "the disk of the cache is too slow; use a local one, or data.cache=memory"
        return "put the data on a faster disk, pack it into large files with distxcept pack, or set data.workers higher"
    if stats.image_size and stats.pixels > 6 * stats.image_size**2 and not stats.cached:
        return (
            f"images have {stats.pixels / 1e6:.1f} million pixels on average; shrink them once with distxcept pack "
            f"--longest-side {2 * stats.image_size}"
        )
    decoded = int(stats.samples * stats.pixels * 3)
    if not stats.cached and 0 < decoded < 0.5 * stats.free_bytes:
        return f"data.cache=memory would hold all decoded images in {show_size(decoded)}"
    return "give each process more cores, or use fewer augmentations"
