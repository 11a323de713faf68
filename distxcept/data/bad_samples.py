"""Why a sample has weight zero. The dataset only marks it, so it is read again to find the reason."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from distxcept.data.batch import Batch
from distxcept.data.dataset import Reading
from distxcept.data.decode import View, render
from distxcept.data.host import usable_cores
from distxcept.data.retry import reason_of
from distxcept.data.sources.base import BadSample, Source

OnBad = Callable[[int, str, str], None]
"""Called with the index, the path and the reason for every bad sample."""


def bad_indices(batches: Sequence[Batch]) -> list[int]:
    """Eager. The samples of these batches that have weight zero."""
    found: list[int] = []
    for batch in batches:
        weights = np.asarray(batch.weights)
        if not weights.all():
            indices = np.asarray(batch.indices)[weights == 0]
            found += indices[indices >= 0].tolist()
    return sorted(found)


def bad_samples(reading: Reading, batches: Sequence[Batch]) -> list[tuple[int, str, str]]:
    """Eager. Index, path and reason for each of them."""
    return explain(reading, bad_indices(batches))


def explain(reading: Reading, indices: Sequence[int]) -> list[tuple[int, str, str]]:
    """Index, path and reason for each."""
    if not indices:
        return []
    with ThreadPoolExecutor(usable_cores()) as pool:
        reasons = pool.map(lambda index: _reason(reading.source, index, reading.max_pixels), indices)
        names = [reading.source.name(index) for index in indices]
        return list(zip(indices, names, reasons, strict=True))


def _reason(source: Source, index: int, max_pixels: int) -> str:
    if source.labels[index] < 0:
        return f"label out of range: there are {len(source.class_names)} classes"
    try:
        render(source.read(index), View(), np.empty((32, 32, 3), np.uint8), max_pixels=max_pixels)
    except BadSample as error:
        return str(error)
    except Exception as error:
        return reason_of(error)
    return "could not be read when it was needed, but can be read now"
