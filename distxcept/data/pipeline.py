"""Batches of updates for the replicas of this process, read ahead by threads.

    order (pure) → indices of an update → threads: read, check, decode and crop, scale → uint8 arrays
    → a thread: the next update's tensors, on the devices of their replicas

Each sample has its slot in the update's arrays from the start, so threads may finish in any order and the result
is the same. Several updates are in flight, across the ends of epochs too. An error in a sample gives it weight
zero and a report; every replica still gets its arrays, so no rank falls out of step.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from distxcept.batching import BatchPlan
from distxcept.data.augment import draw_views
from distxcept.data.batches import HOST, ReplicaBatch, Slots, UpdateBatch, to_tensors
from distxcept.data.cache import Cache
from distxcept.data.host import updates_ahead, usable_cores
from distxcept.data.order import PADDING, update_indices
from distxcept.data.patience import lacked_memory, outlast_want_of_memory, reason_of
from distxcept.data.pool import MOST_PER_CORE, Workers, threads_wanted
from distxcept.data.reader import MAX_PIXELS, Reader
from distxcept.data.scaling.bilinear import aligned_empty
from distxcept.data.sources.base import Source
from distxcept.data.waiting import InputStats

OnBad = Callable[[int, str, str], None]
"""Called as (sample index, path, reason) for every bad sample, in the thread that asks for batches."""

Devices = Callable[[], Sequence[str] | None]
"""Asked when an update is delivered: the device of each local replica, or None to leave the images on the host."""

_MOST_AHEAD = 16
_MOST_PER_TASK = 16


@dataclass
class _Pending:
    """An update on its way: read by many tasks, then, once it is the next, delivered as tensors."""

    epoch: int
    update: int
    real_samples: int
    replicas: list[Slots]
    tasks_left: int = 0
    is_next: bool = False
    batches: list[ReplicaBatch] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)
    error: BaseException | None = None
    ready: threading.Event = field(default_factory=threading.Event)


class Updates(Iterator[UpdateBatch]):
    """Iterator over the updates from a given point on. Construct it by `updates`; close it when done.

    Adapts itself while it runs: more threads while they wait for the storage, more updates ahead when the caller
    had to wait, up to `most_ahead`.
    """

    def __init__(
        self,
        reader: Reader,
        plan: BatchPlan,
        replicas: range,
        points: Iterator[tuple[int, int]],
        *,
        image_size: int,
        workers: int | None,
        most_ahead: int,
        on_bad: OnBad | None,
        devices: Devices | None,
    ):
        self._reader, self._plan, self._replicas, self._points = reader, plan, replicas, points
        self._image_size, self._on_bad, self._devices = image_size, on_bad, devices
        self._fixed_workers = workers
        threads = workers or usable_cores()
        self._workers = Workers(threads, threads if workers else threads * MOST_PER_CORE)
        self._ahead, self._most_ahead = min(2, most_ahead), most_ahead
        self._pending: deque[_Pending] = deque()
        self._delivery = ThreadPoolExecutor(1, thread_name_prefix="distxcept-delivery")
        self._lock = threading.Lock()
        self._stats = self._new_stats()

    def __next__(self) -> UpdateBatch:
        self._fill()
        if not self._pending:
            self.close()
            raise StopIteration
        begun = time.perf_counter()
        late = not self._pending[0].ready.is_set()
        self._pending[0].ready.wait()
        waited = time.perf_counter() - begun
        done = self._pending.popleft()
        if done.error is not None:
            self.close()
            raise done.error
        self._adapt(late, waited)
        self._fill()
        for index, reason in sorted(done.bad):
            if self._on_bad is not None:
                self._on_bad(index, self._reader.source.name(index), reason)
        return UpdateBatch(done.epoch, done.update, done.batches, done.real_samples, waited)

    def close(self) -> None:
        """Stops the threads; what was read ahead is dropped. May be called twice."""
        self._points = iter(())
        self._pending.clear()
        self._workers.close()
        self._delivery.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> "Updates":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take_stats(self) -> InputStats:
        """What was measured since the last call."""
        with self._lock:
            taken, self._stats = self._stats, self._new_stats()
        return taken

    def _new_stats(self) -> InputStats:
        return InputStats(
            threads=self._workers.threads,
            image_size=self._image_size,
            cached=self._reader.cache is not None,
        )

    def _adapt(self, late: bool, waited: float) -> None:
        with self._lock:
            self._stats.consumer_wait_seconds += waited
            storage_share = self._stats.storage_share
            self._stats.threads = self._workers.threads
        if late and self._ahead < self._most_ahead:
            self._ahead += 1
        if self._fixed_workers is None:
            self._workers.use(threads_wanted(usable_cores(), storage_share))

    def _fill(self) -> None:
        while len(self._pending) < self._ahead:
            point = next(self._points, None)
            if point is None:
                break
            self._pending.append(self._start(*point))
        if self._pending and not self._pending[0].is_next:
            with self._lock:
                self._pending[0].is_next = True
                self._deliver_if_due(self._pending[0])

    def _start(self, epoch: int, update: int) -> _Pending:
        replicas = [self._slots(epoch, update, replica) for replica in self._replicas]
        pending = _Pending(epoch, update, self._plan.real_samples(update), replicas)
        samples = sum(slots.indices.size for slots in replicas)
        chunk = _chunk_size(samples, self._workers.threads)
        tasks = []
        for slots in replicas:
            wanted = np.flatnonzero(slots.indices.reshape(-1) != PADDING)
            for start in range(0, len(wanted), chunk):
                tasks.append(partial(self._read, pending, slots, wanted[start : start + chunk]))
        pending.tasks_left = len(tasks)
        for task in tasks:
            self._workers.submit(task)
        return pending

    def _slots(self, epoch: int, update: int, replica: int) -> Slots:
        block = self._plan.block(update, replica)
        indices = update_indices(
            self._plan, seed=self._reader.seed, epoch=epoch, update=update, virtual=block
        )
        real = indices != PADDING
        labels = np.zeros(indices.shape, np.int32)
        labels[real] = self._reader.source.labels[indices[real]]
        images = aligned_empty((*indices.shape, self._image_size, self._image_size, 3), np.uint8)
        images[~real] = 0
        return Slots(images, labels, real.astype(np.float32), indices, block.start)

    def _read(self, pending: _Pending, slots: Slots, wanted: NDArray[np.int64]) -> None:
        """Fills the slots with these flat numbers. Runs in a thread; the last one of an update reports it ready."""
        begun, waited, pixels = time.perf_counter(), 0.0, 0
        bad: list[tuple[int, str]] = []
        try:
            waited, pixels, bad = outlast_want_of_memory(
                lambda: self._read_each(pending.epoch, slots, wanted)
            )
        except BaseException as error:
            pending.error = error
        with self._lock:
            pending.bad.extend(bad)
            self._stats.samples += len(wanted)
            self._stats.busy_seconds += time.perf_counter() - begun
            self._stats.storage_wait_seconds += waited
            self._stats.stored_pixels += pixels
            pending.tasks_left -= 1
            self._deliver_if_due(pending)

    def _deliver_if_due(self, pending: _Pending) -> None:
        """With the lock. The next update goes to the devices as soon as it is read; the others wait on the host."""
        if pending.is_next and not pending.tasks_left:
            with suppress(RuntimeError):  # closed meanwhile: nobody waits for it
                self._delivery.submit(self._deliver, pending)

    def _deliver(self, pending: _Pending) -> None:
        try:
            if pending.error is None:
                devices = self._devices() if self._devices is not None else None
                pending.batches = [
                    to_tensors(slots, devices[number] if devices else HOST)
                    for number, slots in enumerate(pending.replicas)
                ]
        except BaseException as error:
            pending.error = error
        pending.ready.set()

    def _read_each(
        self, epoch: int, slots: Slots, wanted: NDArray[np.int64]
    ) -> tuple[float, int, list[tuple[int, str]]]:
        """Seconds waited for the storage, pixels that the stored images have, and what is bad, with the reason."""
        reader, waited, pixels = self._reader, 0.0, 0
        bad: list[tuple[int, str]] = []
        images = slots.images.reshape(-1, self._image_size, self._image_size, 3)
        labels, weights, indices = (
            slots.labels.reshape(-1),
            slots.weights.reshape(-1),
            slots.indices.reshape(-1),
        )
        views = draw_views(reader.augment, seed=reader.seed or 0, epoch=epoch, indices=indices[wanted])
        chosen = [int(indices[slot]) for slot in wanted]
        with tf.device("/CPU:0"):
            results = reader.fill(chosen, views, [images[slot] for slot in wanted])
        for slot, result in zip(wanted, results, strict=True):
            if isinstance(result, Exception):
                if lacked_memory(result):
                    raise MemoryError(str(result))
                images[slot], labels[slot], weights[slot] = 0, 0, 0.0
                bad.append((int(indices[slot]), reason_of(result)))
            else:
                waited += result.waited_seconds
                pixels += result.stored_pixels
        return waited, pixels, bad


def _chunk_size(samples: int, threads: int) -> int:
    """Samples of one task: some, to spread what each costs, but two updates shall keep all threads busy."""
    return max(1, min(_MOST_PER_TASK, 2 * samples // threads))


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
    workers: int | Literal["auto"] | None = None,
    host_memory: str = "auto",
    processes: int = 1,
    cache: Cache | None = None,
    max_pixels: int = MAX_PIXELS,
    on_bad: OnBad | None = None,
    devices: Devices | None = None,
) -> Updates:
    """The updates from (first_epoch, first_update) on, for these replicas of the plan.

    `epochs` counts epochs from `first_epoch` on, the one begun in the middle included; None is without end.
    Without a seed the order is the natural one; with `augment=None` images are cut at the centre: validation.
    `processes` is how many processes of the run share this machine, and with it the free memory.
    Starting anywhere costs the same, because nothing before that point is drawn or read.
    """
    reader = Reader(source=source, seed=seed, augment=augment, max_pixels=max_pixels, cache=cache)
    blocks = plan.blocks(plan.virtual_per_update)
    samples = sum(len(blocks[replica]) for replica in replicas) * plan.virtual_batch
    return Updates(
        reader,
        plan,
        replicas,
        _points(plan.updates_per_epoch, first_epoch, first_update, epochs),
        image_size=image_size,
        workers=None if workers == "auto" else workers,
        most_ahead=min(_MOST_AHEAD, updates_ahead(host_memory, samples * image_size**2 * 3, processes)),
        on_bad=on_bad,
        devices=devices,
    )


def _points(per_epoch: int, epoch: int, update: int, epochs: int | None) -> Iterator[tuple[int, int]]:
    last = None if epochs is None else epoch + epochs
    while last is None or epoch < last:
        for current in range(update, per_epoch):
            yield epoch, current
        epoch, update = epoch + 1, 0
