"""Whether the input holds up the training, and what would help: one sentence, from what was measured."""

from dataclasses import dataclass

from distxcept.config.size import show_size

NOTICEABLE = 0.1
"""Share of the time spent waiting for data from which on it is worth a sentence."""


@dataclass
class InputStats:
    """What the pipeline measured since the last `take_stats`."""

    samples: int = 0
    consumer_wait_seconds: float = 0.0
    """The training stood still for the next update."""
    busy_seconds: float = 0.0
    """Sum over the threads: reading, decoding, changing."""
    storage_wait_seconds: float = 0.0
    """Part of it that waited for the storage."""
    stored_pixels: int = 0
    threads: int = 1
    image_size: int = 0
    cached: bool = False

    @property
    def storage_share(self) -> float:
        return self.storage_wait_seconds / self.busy_seconds if self.busy_seconds else 0.0


def data_wait(stats: InputStats, elapsed_seconds: float) -> float:
    """Share of the elapsed time in which the training waited for data, 0 to 1."""
    return min(1.0, stats.consumer_wait_seconds / elapsed_seconds) if elapsed_seconds > 0 else 0.0


def advice(stats: InputStats, elapsed_seconds: float, *, samples: int, free_bytes: int) -> str | None:
    """A sentence for the end of an epoch if the input is the bottleneck; None if it is not.

    `samples` is the size of the data and `free_bytes` the free memory, to know whether a cache would fit.
    """
    share = data_wait(stats, elapsed_seconds)
    if share < NOTICEABLE or not stats.samples:
        return None
    seconds_each = stats.busy_seconds / stats.samples
    found = (
        f"the training waited {share:.0%} of the time for data ({1000 * seconds_each:.1f} ms an image on "
        f"{stats.threads} threads, {stats.storage_share:.0%} of it waiting for the storage)"
    )
    return f"{found}: {_cure(stats, samples, free_bytes)}"


def _cure(stats: InputStats, samples: int, free_bytes: int) -> str:
    pixels_each = stats.stored_pixels / stats.samples
    if stats.storage_share > 0.5:
        if stats.cached:
            return "the cache's disk is too slow; use a local one, or data.cache=memory"
        return "put the data on a faster disk, or read it in large files: distxcept pack"
    if stats.image_size and pixels_each > 6 * stats.image_size**2 and not stats.cached:
        side = 2 * stats.image_size
        return (
            f"images have {pixels_each / 1e6:.1f} million pixels on average; shrink them once with distxcept pack "
            f"--longest-side {side}"
        )
    decoded = samples * int(pixels_each) * 3
    if not stats.cached and decoded < 0.5 * free_bytes:
        return f"decoding takes the time; data.cache=memory would hold all images in {show_size(decoded)}"
    return "decoding takes the time; give each process more cores, or use fewer augmentations"
