"""One weight update, exactly as the config defines it.

    for each micro step of this replica, one at a time       accumulate.py; on a CPU in parts, one on each core:
        sums += gradients, batch-norm statistics, counters
    sums = sum over all replicas                             once; or in fixed order: ordered.py
    if all gradients are finite (the same answer everywhere):
        gradient = sums / real samples;  clip;  decay;  optimizer;  pruning;  moving average;  moving statistics    apply.py

Nothing is assigned before the last step, so an update that fails half way can be run again. A rank that runs out of
memory sends zeros and a flag in place of its sums, and all ranks discard the update. If it does so in the last step, the
others use its sums already, and it tries that step again.
"""

import time
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from distxcept.batching import BatchPlan
from distxcept.config.schema import Config
from distxcept.data.batch import Batch
from distxcept.engines import Engine
from distxcept.engines.numerics import clock
from distxcept.errors import LostForMemoryError
from distxcept.memory.limit import release_memory
from distxcept.model.freezing import trained_norms, trained_parameters
from distxcept.model.network import Network
from distxcept.model.precision import PRECISIONS
from distxcept.training.accumulate import Accumulator, Form, Sums
from distxcept.training.apply import Applier, adapt_loss_scale
from distxcept.training.objective import Objective
from distxcept.training.ordered import empty_lanes, lane_sums, sum_lanes
from distxcept.training.out_of_memory import is_out_of_memory
from distxcept.training.pruning import prunable
from distxcept.training.state import State


@dataclass(frozen=True)
class Outcome:
    """What one update tells the loop; the same on every rank."""

    samples: int
    loss_sum: float
    correct: int
    applied: bool
    gradient_norm: float
    loss_scale: float
    stop_requested: bool
    out_of_memory: bool = False
    """Some rank had too little memory: nothing was changed, and the update has to run again in smaller steps."""
    work_seconds: float = 0.0
    """With several ranks: until the sums of this rank were ready for the others. It differs between ranks."""


@dataclass(frozen=True)
class Pending:
    """An update that was given to the devices. Reading its outcome waits until it is done."""

    values: tf.Tensor
    began: float
    failed: bool = False
    """This process had too little memory for it."""

    def read(self) -> Outcome:
        samples, loss, correct, stop_sum, failed, applied, norm, scale, ready = self.values.numpy().tolist()
        return Outcome(
            round(samples),
            loss,
            round(correct),
            bool(applied),
            norm,
            scale,
            stop_sum > 0,
            failed > 0,
            ready - self.began if ready else 0.0,
        )


class Update:
    def __init__(self, config: Config, engine: Engine, model: Network, objective: Objective, weights=None):
        self.config, self.engine, self.model = config, engine, model
        self.precision = PRECISIONS[config.precision]
        norms = trained_norms(model, config.model.freeze)
        self.state = State(
            engine,
            model,
            trained_parameters(model, config.model.freeze),
            config.optimizer.slot_names,
            norms=norms,
            seed=config.run.seed,
            precision=self.precision,
            ema=config.optimizer.ema is not None,
            weights=weights,
        )
        trained = {p.name for pack in self.state.packs for p in pack.parameters}
        pruned = trained & prunable(model) if config.optimizer.pruning is not None else set()
        self.apply = Applier(config, self.state, momenta=model.momenta, pruned=pruned)
        augment = config.data.augment
        self.accumulator = Accumulator(
            model,
            objective,
            self.precision,
            self.state.packs,
            self.state.moving,
            self.state.fixed,
            frozen_norms=frozenset(trained_norms(model, None)) - frozenset(norms),
            mixup=augment.mixup if augment else 0.0,
            cutmix=augment.cutmix if augment else 0.0,
            compile_part=engine.compile_part,
        )
        # Gradients that travel or are computed in float16 are those of the mean loss: a sum would overflow.
        shrink = self.precision.loss_scaling or config.engine.compression == "fp16"
        self.gradient_scale = 1.0 / config.batch.global_ if shrink else 1.0
        self._replica_step = engine.compile(self._step)
        self._replica_failure = engine.compile(self._failure)
        self._replica_finish = engine.compile(self._finish)

    def __call__(self, batches: list[Batch], plan: BatchPlan, **arguments) -> Outcome:
        """Eager. `start`, and then the outcome."""
        return self.start(batches, plan, **arguments).read()

    def start(
        self,
        batches: list[Batch],
        plan: BatchPlan,
        *,
        key: int,
        rate: float,
        prune_to: float = 0.0,
        padded: bool = False,
        stop: bool = False,
        overlap: bool = False,
        remat: bool = False,
    ) -> Pending:
        """Eager. `batches` has one entry for each local replica; `key` fixes the randomness of the update.

        `padded`: the update has padding on some replica.
        """
        dtype = self.precision.variable
        with tf.device("CPU:0"):
            common = (
                tf.constant(key, tf.int64),
                tf.constant(rate, dtype),
                tf.constant([float(stop)], tf.float64),
                tf.constant(prune_to, dtype),
            )
        real = real_virtual_batches(batches)
        # Padding needs more memory and is rare. With overlap, running out of memory there would end the process.
        full = real == [batch.images.shape[0] for batch in batches]
        overlap = overlap and not padded and full
        can_fuse = plan.lanes is None and dtype != tf.float64
        forms = tuple(
            Form(
                parts=tuple(plan.parts(batch.images.shape[0])),
                at_once=plan.side_by_side,
                fused=number if can_fuse else 0,
                remat=remat,
            )
            for batch, number in zip(batches, real, strict=True)
        )
        began, failed = time.time(), False
        try:
            without_indices = [batch._replace(indices=()) for batch in batches]
            values = self._replica_step(
                without_indices, common, forms=forms, lanes=plan.lanes, overlap=overlap
            )
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if overlap:
                raise LostForMemoryError("while gradients were already on their way") from error
            values, failed = self._report_failure(common, plan.lanes, error), True
        if self.engine.ranks > 1:
            values = self._finish_with_retry(values, common)
        return Pending(values, began, failed)

    def _finish_with_retry(self, sums, common, *, again: bool = False) -> tf.Tensor:
        """Eager. The other ranks use these sums already: a rank without memory tries again with nothing else in it."""
        try:
            return self._replica_finish([sums], common)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if again or not self.state.is_consistent():
                raise LostForMemoryError("while the weights were changing") from error
        release_memory()
        return self._finish_with_retry(sums, common, again=True)

    def _report_failure(self, common, lanes: int | None, error: Exception):
        """Eager. Zeros and the flag where the other ranks wait for this one's sums."""
        if not self.state.is_consistent():
            raise LostForMemoryError("while the weights were changing") from error
        if not self.engine.survives_failure:
            raise LostForMemoryError("on one of the devices") from error
        if self.engine.ranks == 1:
            return tf.constant([0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0], tf.float64)
        return self._replica_failure([tf.constant(0.0, self.precision.variable)], common, lanes=lanes)

    def _step(self, batch: Batch, common, *, forms, lanes, overlap) -> tf.Tensor:
        """Traced, replica context."""
        key, _, stop, _ = common
        vectors = [tied_to_device(variable) for variable in self.state.weights]
        key, scale = tied_to_device(key), tied_to_device(self.state.loss_scale) * self.gradient_scale
        form = forms[tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)]
        if lanes is None:
            sums = self.accumulator.block(vectors, batch, key, scale, form=form, early=overlap)
        else:
            local = lanes // self.engine.replicas
            sums = lane_sums(self.accumulator, vectors, batch, key, scale, form=form, local_lanes=local)
        if not overlap:
            sums = all_at_once(sums)
        return self._sum(sums, tf.concat([stop, [0.0]], axis=0), common, lanes)

    def _failure(self, zero: tf.Tensor, common, *, lanes) -> tf.Tensor:
        """Traced, replica context. As `_step`, but with zeros."""
        zeros = self.accumulator.zeros(zero)
        sums = zeros if lanes is None else empty_lanes(zeros, lanes // self.engine.replicas)
        return self._sum(sums, tf.concat([common[2], [1.0]], axis=0), common, lanes)

    def _sum(self, sums: Sums, flags: tf.Tensor, common, lanes: int | None):
        """Traced, replica context. From the sums of this replica to those of all, and on one rank to the new weights.

        Several ranks do the rest in a call of its own: a rank that runs out of memory there has the sums and tries again.
        """
        ready = time_when_known(sums) if self.engine.ranks > 1 else tf.constant(0.0, tf.float64)
        if lanes is None:
            counters = tf.concat([sums.counters, flags], axis=0)
            gradients, (statistics, counters) = self.engine.sum(sums.gradients, [sums.statistics, counters])
        else:
            gradients, statistics, counters = sum_lanes(self.engine, sums)
            with tf.control_dependencies([counters]):
                _, (flags,) = self.engine.sum([], [tf.identity(flags)])
            counters = tf.concat([counters, flags], axis=0)
        summed = (gradients, statistics, counters, ready)
        return summed if self.engine.ranks > 1 else self._finish(summed, common)

    def _finish(self, summed, common) -> tf.Tensor:
        """Traced, replica context. From the sums of all replicas to the new weights."""
        gradients, statistics, counters, ready = summed
        _, rate, _, prune_to = common
        scale = tf.convert_to_tensor(self.state.loss_scale) * self.gradient_scale
        count = tf.cast(counters[0], self.precision.variable)
        # The norm is finite if and only if every gradient is (and far from overflow).
        norm = tf.linalg.global_norm(gradients)
        finite, complete = tf.math.is_finite(norm), counters[4] == 0.0
        counts = tf.logical_and(tf.logical_and(finite, complete), count > 0)
        norm = norm / (scale * count)
        self.apply(counts, gradients, statistics / count, norm, 1.0 / (scale * count), rate, prune_to)
        if self.precision.loss_scaling:
            adapt_loss_scale(self.state, finite, complete)
        outcome = [counts, norm, self.state.loss_scale, ready]
        return tf.concat([counters, tf.stack([tf.cast(value, tf.float64) for value in outcome])], axis=0)


def real_virtual_batches(batches: list[Batch]) -> list[int]:
    """Eager. For each local replica how many of its virtual batches have real samples only, counted from its first.

    A short update has padding in its last virtual batch only, so each virtual batch is computed in the same way on any
    number of replicas. Bad images may be anywhere: then none counts, or each place would need a trace of its own.
    """
    real = [np.all(batch.weights, axis=1) for batch in batches]
    if not np.all(np.concatenate(real)[:-1]):
        return [0] * len(batches)
    return [int(np.sum(of_replica)) for of_replica in real]


def tied_to_device(value: tf.Tensor | tf.Variable) -> tf.Tensor:
    """Traced, replica context. On the device of this replica: a loop would keep what it only reads on the host, and fetch
    all weights from there for every micro step."""
    return tf.identity(value)


def all_at_once(sums: Sums) -> Sums:
    """Traced, replica context. Nothing leaves before all is there: a rank that fails until then has submitted nothing."""
    tensors = tf.nest.flatten(sums)
    with tf.control_dependencies(tensors):
        return tf.nest.pack_sequence_as(sums, [tf.identity(tensor) for tensor in tensors])


def time_when_known(sums: Sums) -> tf.Tensor:
    """Traced, replica context. Seconds since 1970 at which these sums were computed; nothing waits for it.

    The host has to see a number that is computed last: a device has only promised the rest by then.
    """
    with tf.device("CPU:0"), tf.control_dependencies([*sums.gradients, tf.identity(sums.counters)]):
        return clock()  # tf.timestamp fails where operations are deterministic
