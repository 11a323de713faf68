"""The input of one replica: a `tf.data.Dataset` from the number of an update to its `Batch`.

    Dataset.range         numbers of this replica's virtual batches, from any update on, at the same cost
    read    (parallel)    position → sample index by the permutation of (seed, epoch) → contents of the files
    decode  (parallel)    size of each image → window → pixels → augmentation
    batch                 the virtual batches of one update
    prefetch              as far ahead as data.host_memory allows

Everything up to the pixels is a graph without state. So a sample looks the same for every number of replicas, threads
and updates read before it. A sample that cannot be used gets weight zero in its place, and nothing else changes.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from distxcept.batching import BatchPlan
from distxcept.config.schema import Config
from distxcept.data.augment import centre_windows, change, draw
from distxcept.data.batch import HOST, Batch
from distxcept.data.cache import open_cache
from distxcept.data.decode import fill, upright_sizes
from distxcept.data.host import input_bytes, usable_cores
from distxcept.data.order import PADDING, indices_at
from distxcept.data.sources import Source
from distxcept.data.sources.graph import with_tables
from distxcept.errors import DoesNotFitError

ENDLESS = 2**40
"""Updates of a dataset that has no end."""
_FILES_AT_ONCE = 512
"""Files whose contents wait in memory, at most, if more threads do not ask for more."""
_RETRY_SECONDS = (0.5, 2.0, 5.0)
"""Pauses after the host had too little memory for the input. The training may give some back meanwhile."""

Devices = Callable[[], Sequence[str] | None]
"""Called for each update. The device of each local replica that its images go to; None: they stay on the host."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the samples of a split become pixels. `reading_of` makes it from a config."""

    source: Source
    image_size: int
    seed: int | None
    """None: the natural order and no random changes."""
    augment: Any = None
    """The config section; None for none."""
    crop: float = 1.0
    """Without a random crop: side of the centred square as part of the shorter side."""
    interpolation: str = "bilinear"
    max_pixels: int
    threads: int | None = None
    """None: as many as the cores, and more for reading."""
    memory: str = "auto"
    """data.host_memory: how much memory the updates that are read ahead may take."""
    processes: int = 1
    """Processes of the run that share this machine."""


def reading_of(config: Config, source: Source, *, training: bool, processes: int = 1) -> Reading:
    """How the config reads this split. Only training data is cached: validation data is read once in an epoch."""
    data, size = config.data, config.model.image_size
    augment = data.augment if training else None
    if training:
        has_crop = augment is not None and augment.crop is not None
        source = open_cache(
            data.cache,
            source,
            image_size=size,
            whole=has_crop,
            max_pixels=data.max_pixels,
            processes=processes,
        )
    return Reading(
        source=source,
        image_size=size,
        seed=config.run.seed if training else None,
        augment=augment,
        crop=1.0 if training else data.evaluate.crop,
        interpolation="bilinear" if training else data.evaluate.interpolation,
        max_pixels=data.max_pixels,
        threads=None if data.workers == "auto" else data.workers,
        memory=data.host_memory,
        processes=processes,
    )


def stored_pixels(reading: Reading, sample: int = 32) -> float:
    """Eager. How many pixels a stored image has, on average over some images."""
    chosen = np.linspace(0, len(reading.source) - 1, min(sample, len(reading.source))).astype(np.int64)
    contents, _ = reading.source.contents(tf.constant(chosen))
    sizes = upright_sizes(contents, raw=reading.source.raw, max_pixels=reading.max_pixels).numpy()
    pixels = sizes.prod(axis=1)
    return float(pixels[pixels > 0].mean()) if pixels.any() else 0.0


def replica_dataset(
    reading: Reading,
    plan: BatchPlan,
    replica: int,
    *,
    first: int = 0,
    updates: int = ENDLESS,
    pad: bool = False,
    together: int = 1,
    graph: "Graph | None" = None,
) -> tf.data.Dataset:
    """`updates` batches of this replica from update `first` of the run on; elements are `Batch`.

    A short update may have fewer virtual batches. With `pad` it has as many as the others, of weight zero. `together`
    datasets of this process share its memory and cores, and the `graph` of what they do.
    """
    slots = _slots(plan, replica)
    work = _Work(graph or Graph(reading, plan), replica, slots)
    numbers = tf.data.Dataset.range(first * slots, (first + updates) * slots)
    cores = max(1, usable_cores() // together)
    # Waiting for the storage takes no core.
    waiting = max(cores, min(4 * cores, _FILES_AT_ONCE // plan.virtual_batch))
    read_at_once = max(1, reading.threads // together) if reading.threads else waiting
    plainly = tf.autograph.experimental.do_not_convert

    def finish(*parts: tf.Tensor) -> Batch:
        whole = [part[None] for part in parts] if slots == 1 else parts
        return work.finish(*whole, pad=pad)

    dataset = with_tables(numbers, reading.source).map(
        plainly(work.read), num_parallel_calls=read_at_once, name="read"
    )
    # Not AUTOTUNE, which takes as many calls as there are threads, those that wait for the storage too: they would only
    # hold more images and take the cores from each other.
    decode_at_once = min(cores, read_at_once)
    dataset = dataset.map(plainly(work.graph.decode), num_parallel_calls=decode_at_once, name="decode")
    if slots > 1:  # else it would only copy
        dataset = dataset.batch(slots, drop_remainder=True, name="batch")
    dataset = dataset.map(plainly(finish), name="finish")
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(
        _options(
            threads=read_at_once if reading.threads else read_at_once + cores,
            cores=read_at_once if reading.threads else cores,
            memory=memory_of_input(reading, plan, range(replica, replica + 1), together) // together,
        )
    )


def _slots(plan: BatchPlan, replica: int) -> int:
    """Virtual batches of the replica's largest update; at least one, because a dataset has a shape."""
    return max(1, *(len(plan.block(update, replica)) for update in (0, plan.updates_per_epoch - 1)))


def memory_of_input(reading: Reading, plan: BatchPlan, replicas: range, times: int = 1) -> int:
    """Bytes that this process may use for what is read ahead. DoesNotFitError if two updates are more than that."""
    samples = times * sum(_slots(plan, replica) for replica in replicas) * plan.virtual_batch
    return input_bytes(reading.memory, samples * reading.image_size**2 * 3, reading.processes)


def _options(*, threads: int, cores: int, memory: int) -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = True
    options.threading.private_threadpool_size = threads
    options.autotune.cpu_budget = cores
    options.autotune.ram_budget = memory
    options.experimental_warm_start = True
    # It would run the last stage in parallel too, and hold a whole update for each call.
    options.experimental_optimization.map_parallelization = False
    return options


class Graph:
    """What does not depend on the replica: traced once, for all replicas of a process."""

    def __init__(self, reading: Reading, plan: BatchPlan):
        self.reading, self.plan = reading, plan
        self.indices_at = tf.function(self._indices_at, autograph=False)
        self.decode = tf.function(self._decode, autograph=False)

    def _indices_at(self, positions: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        """Traced."""
        return indices_at(positions, samples=self.plan.samples, seed=self.reading.seed, epoch=epoch)

    def _decode(
        self, update: tf.Tensor, epoch: tf.Tensor, indices: tf.Tensor, labels: tf.Tensor, contents: tf.Tensor,
        ok: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:  # fmt: skip
        """Traced. One virtual batch: number of the update, images, labels, weights, indices."""
        reading, size, v = self.reading, self.reading.image_size, self.plan.virtual_batch
        how: dict[str, Any] = {"raw": reading.source.raw, "max_pixels": reading.max_pixels}
        sizes = tf.where(ok[:, None], upright_sizes(contents, **how), 0)
        windows, flips = self._windows(sizes, epoch, indices)
        images, done = fill(contents, windows, flips, size=size, interpolation=reading.interpolation, **how)
        ok &= done
        if reading.augment is not None and reading.seed is not None:
            changed = change(reading.augment, images, seed=reading.seed, epoch=epoch, indices=indices)
            if changed is not images:
                images = tf.where(ok[:, None, None, None], changed, tf.zeros([], tf.uint8))
        images = tf.ensure_shape(images, [v, size, size, 3])
        return update, images, tf.where(ok, labels, 0), tf.cast(ok, tf.float32), indices

    def _windows(self, sizes: tf.Tensor, epoch: tf.Tensor, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        reading = self.reading
        if reading.augment is not None and reading.seed is not None:
            return draw(reading.augment, sizes, seed=reading.seed, epoch=epoch, indices=indices)
        return centre_windows(sizes, reading.crop), tf.zeros([self.plan.virtual_batch], tf.bool)


class _Work:
    """What depends on the replica: which virtual batches of an update are its own."""

    def __init__(self, graph: Graph, replica: int, slots: int):
        self.graph, self.plan, self.slots = graph, graph.plan, slots
        updates = (0, self.plan.updates_per_epoch - 1)
        # Of a full update, and of the last one of an epoch.
        self._blocks = [self.plan.block(update, replica) for update in updates]
        virtual = [self.plan.virtual_batches(update) for update in updates]
        self._bounds = [self.plan.local_lane_bounds(number, replica) for number in virtual]
        self._labels = tf.constant(graph.reading.source.labels)

    def read(self, number: tf.Tensor, tables: Any = ()) -> tuple[tf.Tensor, ...]:
        """Traced. One virtual batch: number of its update, epoch, indices, labels, contents, whether they were read."""
        plan, v, source = self.plan, self.plan.virtual_batch, self.graph.reading.source
        update, slot = number // self.slots, number % self.slots
        epoch, in_epoch = update // plan.updates_per_epoch, update % plan.updates_per_epoch
        start, count = self._block(in_epoch)
        first = in_epoch * plan.global_batch + (start + slot) * v
        positions = tf.where(slot < count, first, plan.samples) + tf.range(v, dtype=tf.int64)
        indices = self.graph.indices_at(positions, epoch)
        real = indices != PADDING
        labels = tf.where(real, tf.gather(self._labels, tf.maximum(indices, 0)), 0)
        contents, ok = source.contents(indices, tables)
        contents, ok = tf.ensure_shape(contents, [v]), tf.ensure_shape(ok, [v])
        return update, epoch, indices, labels, contents, ok & real & (labels >= 0)

    def _block(self, in_epoch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Number of the replica's first virtual batch in this update, and how many it has."""
        return (
            self._of([block.start for block in self._blocks], in_epoch, tf.int64),
            self._of([len(block) for block in self._blocks], in_epoch, tf.int64),
        )

    def _of(self, table: Sequence[Any], in_epoch: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """The first entry, or the second one for the last update of an epoch."""
        is_last = tf.equal(in_epoch, self.plan.updates_per_epoch - 1)
        return tf.where(is_last, tf.constant(table[1], dtype), tf.constant(table[0], dtype))

    def finish(
        self, update: tf.Tensor, images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, indices: tf.Tensor,
        *, pad: bool,
    ) -> Batch:  # fmt: skip
        """Traced. The batch of an update, without the virtual batches that it does not have."""
        in_epoch = update[0] % self.plan.updates_per_epoch
        start, count = self._block(in_epoch)
        count = self.slots if pad else count
        return Batch(
            images=images[:count],
            labels=labels[:count],
            weights=weights[:count],
            first_virtual=tf.cast(start, tf.int32),
            lane_bounds=self._of(self._bounds, in_epoch, tf.int32),
            indices=indices[:count],
        )


class Input(Iterator[list[Batch]]):
    """The batches of all local replicas, update by update. Close it when done."""

    def __init__(
        self,
        reading: Reading,
        plan: BatchPlan,
        replicas: range,
        *,
        first: int = 0,
        updates: int = ENDLESS,
        pad: bool = False,
        devices: Devices = lambda: None,
    ):
        self.reading, self.plan = reading, plan
        self._replicas, self._next_update, self._end = replicas, first, first + updates
        self._pad, self._devices = pad, devices
        self._prepared: list[Batch] | None = None
        self._iterators: list[Iterator[Batch]] = []
        self._start()

    def _start(self) -> None:
        graph = Graph(self.reading, self.plan)
        self._iterators = [
            iter(
                replica_dataset(
                    self.reading,
                    self.plan,
                    replica,
                    first=self._next_update,
                    updates=self._end - self._next_update,
                    pad=self._pad,
                    together=len(self._replicas),
                    graph=graph,
                )
            )
            for replica in self._replicas
        ]

    def __next__(self) -> list[Batch]:
        self.prepare()
        if self._prepared is None:
            raise StopIteration
        batches, self._prepared = self._prepared, None
        return batches

    def prepare(self) -> None:
        """Takes the batches of the next update and copies their images to the devices, while these still compute."""
        if self._prepared is not None or self._next_update >= self._end or not self._iterators:
            return
        batches = self._read()
        devices = self._devices() or [HOST] * len(batches)
        self._prepared = [batch.on(device) for batch, device in zip(batches, devices, strict=True)]
        self._next_update += 1

    def _read(self) -> list[Batch]:
        """The next element of each dataset; again from this update on if the host had too little memory for them."""
        for pause in _RETRY_SECONDS:
            with suppress(tf.errors.ResourceExhaustedError):
                return [next(iterator) for iterator in self._iterators]
            self._iterators = []
            time.sleep(pause)
            self._start()
        try:
            return [next(iterator) for iterator in self._iterators]
        except tf.errors.ResourceExhaustedError as error:
            raise DoesNotFitError(
                "the host has too little memory to read the images; set data.host_memory or data.workers lower, or use "
                "a smaller batch.virtual"
            ) from error

    def close(self) -> None:
        """Ends the threads. What was read ahead is dropped."""
        self._iterators, self._prepared = [], None

    def __enter__(self) -> "Input":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stage_seconds(self) -> dict[str, float]:
        """Seconds that a sample takes in each parallel stage, as tf.data has measured them on the first replica."""
        if not self._iterators:
            return {}
        nodes = tf.data.experimental.get_model_proto(self._iterators[0]).nodes
        # Nodes come from the last stage to the first. TensorFlow joins decoding with the batch behind it.
        stages = [nodes[key] for key in sorted(nodes) if nodes[key].name in ("ParallelMapV2", "MapAndBatch")]
        virtual_batches = {"ParallelMapV2": 1, "MapAndBatch": _slots(self.plan, self._replicas[0])}
        return {
            name: node.processing_time
            / 1e9
            / (max(1, node.num_elements) * virtual_batches[node.name] * self.plan.virtual_batch)
            for name, node in zip(("decode", "read"), stages, strict=False)
        }
