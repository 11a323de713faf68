"""One sample from its source to its slot: read, with patience; decode or take from the cache; look at it as drawn."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from distxcept.data.augment import View
from distxcept.data.cache import Cache
from distxcept.data.decode import render_all
from distxcept.data.patience import RETRY_SECONDS, read_patiently
from distxcept.data.sources.base import BadSample, Pixels, Sample, Source

MAX_PIXELS = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How samples become pixels; the same for every update."""

    source: Source
    seed: int | None
    augment: Any
    max_pixels: int = MAX_PIXELS
    cache: Cache | None = None
    retry_seconds: Sequence[float] = field(default=RETRY_SECONDS)

    def fill(
        self, indices: Sequence[int], views: Sequence[View], outs: Sequence[Pixels]
    ) -> list["Spent | Exception"]:
        """Fills each slot, or says in its place why not: `BadSample`, OSError, or what a decoder raised."""
        results: list[Spent | Exception] = [Spent(0.0, 0)] * len(indices)
        read: dict[int, tuple[Sample, float]] = {}
        for place, index in enumerate(indices):
            try:
                if self.source.labels[index] < 0:
                    raise BadSample(f"label out of range: there are {len(self.source.class_names)} classes")
                if self.cache is None:
                    read[place] = self._read(index)
                else:
                    results[place] = self._from_cache(self.cache, index, views[place], outs[place])
            except MemoryError:
                raise
            except Exception as error:  # whatever happens to a sample is its own matter
                results[place] = error
        rendered = render_all(
            [sample for sample, _ in read.values()],
            [views[place] for place in read],
            [outs[place] for place in read],
            max_pixels=self.max_pixels,
        )
        for (place, (_, waited)), result in zip(read.items(), rendered, strict=True):
            if isinstance(result, MemoryError):
                raise result
            results[place] = result if isinstance(result, Exception) else Spent(waited, result)
        return results

    def _from_cache(self, cache: Cache, index: int, view: View, out: Pixels) -> "Spent":
        return Spent(0.0, cache.render(index, view, out, lambda: self._read(index)[0], self.max_pixels))

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
