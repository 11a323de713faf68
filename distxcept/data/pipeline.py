"""Batches of updates for the replicas of this process, read ahead by threads.

    order (pure) → indices of an update → threads: read, check, decode and crop, scale → uint8 arrays → tensors

Each sample has its slot in the update's arrays from the start, so threads may finish in any order and the result
is the same. Several updates are in flight, across the ends of epochs too. An error in a sample gives it weight
zero and a report; every replica still gets its arrays, so no rank falls out of step.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from distxcept.batching import BatchPlan
from distxcept.data.augment import draw_views
from distxcept.data.decode import render
from distxcept.data.order import PADDING, update_indices
from distxcept.data.sources.base import BadSample, Source

OnBad = Callable[[int, str, str], None]
"""Called as (sample index, path, reason) for every bad sample, in the thread that asks for batches."""

MAX_PIXELS = 100_000_000


@dataclass(frozen=True)
class ReplicaBatch:
    """What one replica computes in one update: n virtual batches of v samples, on the host. n may be 0."""

    images: tf.Tensor
    """uint8 [n, v, height, width, 3]; normalisation happens on the device."""
    labels: tf.Tensor
    """int32 [n, v]; 0 where the weight is 0."""
    weights: tf.Tensor
    """float32 [n, v]; 0 for padding and for images that could not be read, else 1."""
    indices: tf.Tensor
    """int64 [n, v]; sample index in the source, -1 for padding."""
    first_virtual: int
    """Number, within the update, of the first virtual batch."""


@dataclass(frozen=True)
class UpdateBatch:
    epoch: int
    update: int
    """Counted within the epoch."""
    replicas: list[ReplicaBatch]
    """One for each local replica."""
    real_samples: int
    """Samples that the update has over all replicas, bad ones included."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How samples become pixels; the same for every update."""

    source: Source
    image_size: int
    seed: int | None
    augment: Any
    max_pixels: int = MAX_PIXELS


@dataclass
class _Slots:
    """The arrays of one replica while threads fill them."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int32]
    weights: NDArray[np.float32]
    indices: NDArray[np.int64]
    first_virtual: int


@dataclass
class _Pending:
    epoch: int
    update: int
    real_samples: int
    replicas: list[_Slots]
    futures: list["Future[None]"] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)


class Updates(Iterator[UpdateBatch]):
    """Iterator over the updates from a given point on. Construct it by `updates`; close it when done."""

    def __init__(
        self,
        reading: Reading,
        plan: BatchPlan,
        replicas: range,
        points: Iterator[tuple[int, int]],
        *,
        workers: int,
        depth: int,
        on_bad: OnBad | None,
    ):
        self._reading, self._plan, self._replicas, self._points = reading, plan, replicas, points
        self._workers, self._depth, self._on_bad = workers, depth, on_bad
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="distxcept-data")
        self._pending: deque[_Pending] = deque()
        self._lock = threading.Lock()

    def __next__(self) -> UpdateBatch:
        self._fill()
        if not self._pending:
            self.close()
            raise StopIteration
        ready = self._pending[0]
        for future in ready.futures:
            future.result()
        self._pending.popleft()
        self._fill()
        for index, reason in sorted(ready.bad):
            if self._on_bad is not None:
                self._on_bad(index, self._reading.source.name(index), reason)
        with tf.device("/CPU:0"):
            batches = [_to_tensors(slots) for slots in ready.replicas]
        return UpdateBatch(ready.epoch, ready.update, batches, ready.real_samples)

    def close(self) -> None:
        """Stops the threads; what was read ahead is dropped. May be called twice."""
        self._points = iter(())
        self._pending.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> "Updates":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill(self) -> None:
        while len(self._pending) < self._depth:
            point = next(self._points, None)
            if point is None:
                return
            self._pending.append(self._start(*point))

    def _start(self, epoch: int, update: int) -> _Pending:
        replicas = [self._slots(epoch, update, replica) for replica in self._replicas]
        pending = _Pending(epoch, update, self._plan.real_samples(update), replicas)
        samples = sum(slots.indices.size for slots in replicas)
        # Small enough to keep all threads busy until the end, large enough that handing out costs nothing.
        chunk = max(1, min(16, samples // (4 * self._workers)))
        for slots in replicas:
            wanted = np.flatnonzero(slots.indices.reshape(-1) != PADDING)
            for start in range(0, len(wanted), chunk):
                future = self._pool.submit(self._read, pending, slots, wanted[start : start + chunk])
                pending.futures.append(future)
        return pending

    def _slots(self, epoch: int, update: int, replica: int) -> _Slots:
        block = self._plan.block(update, replica)
        indices = update_indices(
            self._plan, seed=self._reading.seed, epoch=epoch, update=update, virtual=block
        )
        real = indices != PADDING
        labels = np.zeros(indices.shape, np.int32)
        labels[real] = self._reading.source.labels[indices[real]]
        size = self._reading.image_size
        images = np.empty((*indices.shape, size, size, 3), np.uint8)
        images[~real] = 0
        return _Slots(images, labels, real.astype(np.float32), indices, block.start)

    def _read(self, pending: _Pending, slots: _Slots, wanted: NDArray[np.int64]) -> None:
        """Fills the slots with these flat numbers. Runs in a thread."""
        reading, size = self._reading, self._reading.image_size
        images = slots.images.reshape(-1, size, size, 3)
        indices = slots.indices.reshape(-1)
        views = draw_views(
            reading.augment, seed=reading.seed or 0, epoch=pending.epoch, indices=indices[wanted]
        )
        with tf.device("/CPU:0"):
            for slot, view in zip(wanted, views, strict=True):
                index = int(indices[slot])
                try:
                    sample = reading.source.read(index)
                    render(sample, view.choose, images[slot], flip=view.flip, max_pixels=reading.max_pixels)
                except MemoryError:
                    raise
                except Exception as error:  # whatever a file does to a decoder is that sample's matter alone
                    images[slot] = 0
                    slots.labels.reshape(-1)[slot] = 0
                    slots.weights.reshape(-1)[slot] = 0.0
                    with self._lock:
                        pending.bad.append((index, _reason(error)))


def _reason(error: Exception) -> str:
    if isinstance(error, BadSample):
        return " ".join(str(error).split())
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    return " ".join(f"{type(error).__name__}: {error}".split())


def _to_tensors(slots: _Slots) -> ReplicaBatch:
    return ReplicaBatch(
        tf.convert_to_tensor(slots.images),
        tf.convert_to_tensor(slots.labels),
        tf.convert_to_tensor(slots.weights),
        tf.convert_to_tensor(slots.indices),
        slots.first_virtual,
    )


def updates(
    source: Source,
    plan: BatchPlan,
    *,
    replicas: range,
    image_size: int,
    seed: int | None,
    augment: Any = None,
    first_epoch: int = 0,
    first_update: int = 0,
    epochs: int | None = None,
    workers: int | None = None,
    depth: int = 3,
    max_pixels: int = MAX_PIXELS,
    on_bad: OnBad | None = None,
) -> Updates:
    """The updates from (first_epoch, first_update) on, for these replicas of the plan.

    `epochs` counts epochs from `first_epoch` on, the one begun in the middle included; None is without end.
    Without a seed the order is the natural one; with `augment=None` images are cut at the centre: validation.
    Starting anywhere costs the same, because nothing before that point is drawn or read.
    """
    reading = Reading(source=source, image_size=image_size, seed=seed, augment=augment, max_pixels=max_pixels)
    return Updates(
        reading,
        plan,
        replicas,
        _points(plan.updates_per_epoch, first_epoch, first_update, epochs),
        workers=workers or len(os.sched_getaffinity(0)),
        depth=depth,
        on_bad=on_bad,
    )


def _points(per_epoch: int, epoch: int, update: int, epochs: int | None) -> Iterator[tuple[int, int]]:
    last = None if epochs is None else epoch + epochs
    while last is None or epoch < last:
        for current in range(update, per_epoch):
            yield epoch, current
        epoch, update = epoch + 1, 0
