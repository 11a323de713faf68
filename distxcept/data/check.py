"""Looks at every sample once, as training would: what is there, what is bad, and what is there twice."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxcept.data.decode import decode_whole
from distxcept.data.header import inspect
from distxcept.data.retry import read_with_retries, reason_of
from distxcept.data.sources.base import BadSample, Pixels, Source

_DIGEST = 16
_IN_FLIGHT = 64


@dataclass
class SplitReport:
    """What one split holds."""

    name: str
    class_names: tuple[str, ...]
    class_counts: list[int] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    widths: list[int] = field(default_factory=list)
    heights: list[int] = field(default_factory=list)
    bad: list[tuple[str, str]] = field(default_factory=list)
    """Name and reason."""
    duplicates: list[tuple[str, ...]] = field(default_factory=list)
    """Names of images with the same pixels."""
    relabelled: int = 0
    """Groups of duplicates whose labels differ."""
    digests: NDArray[Any] = field(default_factory=lambda: np.empty(0, f"S{_DIGEST}"))

    @property
    def samples(self) -> int:
        return sum(self.class_counts)

    @property
    def imbalance(self) -> float:
        """Largest class / smallest class that has samples."""
        present = [count for count in self.class_counts if count]
        return max(present) / min(present) if present else 1.0

    def to_json(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "classes": dict(zip(self.class_names, self.class_counts, strict=True)),
            "imbalance": round(self.imbalance, 2),
            "formats": dict(self.formats.most_common()),
            "width": _spread(self.widths),
            "height": _spread(self.heights),
            "bad": [{"path": name, "reason": reason} for name, reason in self.bad],
            "duplicates": [list(group) for group in self.duplicates],
            "duplicates_with_other_labels": self.relabelled,
        }


@dataclass(frozen=True)
class _Look:
    """What one sample turned out to be."""

    kind: str
    width: int
    height: int
    digest: bytes
    reason: str | None = None


def check_split(
    name: str, source: Source, *, max_pixels: int, workers: int, progress: Callable[[int], None] | None = None
) -> SplitReport:
    report = SplitReport(name, source.class_names)
    labels = source.labels
    report.class_counts = np.bincount(labels[labels >= 0], minlength=len(source.class_names)).tolist()
    digests = np.zeros(len(source), f"S{_DIGEST}")
    good = np.zeros(len(source), bool)
    for index, look in enumerate(_looks(source, max_pixels, workers)):
        reason = look.reason if labels[index] >= 0 else "label out of range"
        if reason is not None:
            report.bad.append((source.name(index), reason))
        else:
            report.formats[look.kind] += 1
            report.widths.append(look.width)
            report.heights.append(look.height)
            digests[index], good[index] = look.digest, True
        if progress is not None:
            progress(index + 1)
    report.digests = digests
    _find_duplicates(report, source, np.flatnonzero(good))
    return report


def shared_images(train: SplitReport, validation: SplitReport) -> int:
    """How many validation images are in the training data too, pixel for pixel."""
    known = np.unique(train.digests[train.digests != b""])
    return int(np.isin(validation.digests[validation.digests != b""], known).sum())


def _looks(source: Source, max_pixels: int, workers: int) -> Iterator[_Look]:
    """In order, with a bounded number in flight: results of a million samples are not kept."""
    with ThreadPoolExecutor(workers) as pool:
        indices = iter(range(len(source)))
        flight: list[Future[_Look]] = []
        while True:
            more = islice(indices, _IN_FLIGHT - len(flight))
            flight += [pool.submit(_look, source, index, max_pixels) for index in more]
            if not flight:
                return
            yield flight.pop(0).result()


def _look(source: Source, index: int, max_pixels: int) -> _Look:
    try:
        sample = read_with_retries(lambda: source.read(index))
        kind = "pixels" if sample.encoded is None else inspect(sample.encoded, max_pixels=max_pixels).kind
        pixels = decode_whole(sample, max_pixels=max_pixels)
    except (BadSample, OSError) as error:
        return _Look("", 0, 0, b"", reason_of(error))
    return _Look(kind, pixels.shape[1], pixels.shape[0], _digest(pixels))


def _digest(pixels: Pixels) -> bytes:
    """Of the pixels: a copy with another name, other metadata or lossless format is still the same image."""
    state = hashlib.blake2b(f"{pixels.shape}".encode(), digest_size=_DIGEST)
    state.update(np.ascontiguousarray(pixels).data)
    # Fixed-length byte arrays drop zeros at the end.
    return state.digest().replace(b"\0", b"\1")


def _find_duplicates(report: SplitReport, source: Source, good: NDArray[np.int64]) -> None:
    order = good[np.argsort(report.digests[good], kind="stable")]
    ordered = report.digests[order]
    changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for start, stop in pairwise([0, *changes.tolist(), len(order)]):
        if stop - start > 1:
            group = order[start:stop]
            report.duplicates.append(tuple(source.name(int(index)) for index in group))
            report.relabelled += len(set(source.labels[group].tolist())) > 1
    report.duplicates.sort()


def _spread(values: list[int]) -> dict[str, float] | None:
    if not values:
        return None
    return {"min": min(values), "median": float(np.median(values)), "max": max(values)}
