"""One sample from its source to its slot: read, with patience; decode or take from the cache; look at it as drawn."""

import errno
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from distxcept.data.augment import View
from distxcept.data.cache import Cache
from distxcept.data.decode import render
from distxcept.data.sources.base import BadSample, Pixels, Sample, Source

MAX_PIXELS = 100_000_000

# What network file systems and worn disks report and take back a moment later.
_TRANSIENT = frozenset(
    {
        *(errno.EIO, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ESTALE, errno.ENFILE, errno.EMFILE),
        *(errno.ETIMEDOUT, errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN),
        *(errno.EHOSTUNREACH, errno.ECONNABORTED, errno.ECONNRESET, errno.ECONNREFUSED, errno.ESHUTDOWN),
        *(errno.EREMOTEIO, errno.ENOLINK),
    }
)
RETRY_SECONDS = (0.1, 0.5, 2.0, 5.0)


def read_patiently(
    read: Callable[[], Sample],
    pauses: Sequence[float] = RETRY_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> Sample:
    """Reads again after errors that pass by themselves, with longer and longer pauses."""
    for pause in pauses:
        try:
            return read()
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise
        sleep(pause)
    return read()


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How samples become pixels; the same for every update."""

    source: Source
    seed: int | None
    augment: Any
    max_pixels: int = MAX_PIXELS
    cache: Cache | None = None
    retry_seconds: Sequence[float] = field(default=RETRY_SECONDS)

    def fill(self, index: int, view: View, out: Pixels) -> "Spent":
        """Raises `BadSample` or OSError if the sample cannot be had."""
        if self.source.labels[index] < 0:
            raise BadSample(f"label out of range: there are {len(self.source.class_names)} classes")
        if self.cache is not None:
            pixels = self.cache.render(index, view, out, lambda: self._read(index)[0], self.max_pixels)
            return Spent(0.0, pixels)
        sample, waited = self._read(index)
        return Spent(waited, render(sample, view, out, max_pixels=self.max_pixels))

    def _read(self, index: int) -> tuple[Sample, float]:
        begun, worked = time.perf_counter(), time.thread_time()
        sample = read_patiently(lambda: self.source.read(index), self.retry_seconds)
        elapsed, busy = time.perf_counter() - begun, time.thread_time() - worked
        return sample, max(0.0, elapsed - busy)


@dataclass(frozen=True)
class Spent:
    """What one sample took."""

    waited_seconds: float
    """For the storage, not using the processor."""
    stored_pixels: int


def reason_of(error: Exception) -> str:
    """One line for bad_images.jsonl."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    text = str(error) if isinstance(error, BadSample) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())
