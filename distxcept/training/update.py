"""One weight update, exactly as the config defines it.

    for each micro step of this replica, one at a time       accumulate.py; on a CPU in parts, one on each core:
        sums += gradients, batch-norm statistics, counters
    sums = sum over all replicas                             once; or in fixed order: ordered.py
    if all gradients are finite (the same answer everywhere):
        gradient = sums / real samples;  clip;  decay;  optimizer;  pruning;  moving average;  moving statistics    apply.py

Nothing is assigned before the last step, so an update that fails half way can be run again. A rank that runs out of
memory on the way sends zeros and a flag in place of its sums, and all ranks discard the update. One that does so in the
last step has the sums that the others use, and tries that step again.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from distxcept.batching import BatchPlan
from distxcept.config.schema import Config
from distxcept.engines import Engine
from distxcept.engines.numerics import clock
from distxcept.memory.limit import release_memory
from distxcept.model.freezing import trained_norms, trained_parameters
from distxcept.model.network import Network
from distxcept.model.precision import PRECISIONS
from distxcept.training.accumulate import Accumulator, Batch, Sums
from distxcept.training.apply import Applier, adapt_loss_scale
from distxcept.training.objective import Objective
from distxcept.training.ordered import empty_lanes, lane_sums, sum_lanes
from distxcept.training.out_of_memory import LostForMemoryError, is_out_of_memory
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
    """Until the sums of this rank were ready for the others; the one value that differs between ranks."""


class Update:
    def __init__(self, config: Config, engine: Engine, model: Network, objective: Objective, weights=None):
        self.config, self.engine = config, engine
        self.precision = PRECISIONS[config.precision]
        self.trained = trained_parameters(model, config.model.freeze)
        norms = trained_norms(model, config.model.freeze)
        self.state = State(
            engine,
            model,
            self.trained,
            config.optimizer.slot_names,
            seed=config.run.seed,
            precision=self.precision,
            ema=config.optimizer.ema is not None,
            weights=weights,
        )
        prunes = config.optimizer.pruning is not None
        self.apply = Applier(
            config,
            self.state,
            self.trained,
            norms=norms,
            momenta=model.momenta,
            pruned={p.name for p in self.trained} & prunable(model) if prunes else set(),
        )
        every_norm = trained_norms(model, None)
        self.accumulator = Accumulator(
            model,
            objective,
            self.precision,
            trained=[p.name for p in self.trained],
            norms=norms,
            frozen_norms=frozenset(every_norm) - frozenset(norms),
            mixup=config.data.augment.mixup if config.data.augment else 0.0,
            cutmix=config.data.augment.cutmix if config.data.augment else 0.0,
            compile_part=engine.compile_part,
        )
        # Gradients that travel or are computed in float16 are those of the mean loss: a sum would overflow.
        shrink = self.precision.loss_scaling or config.engine.compression == "fp16"
        self.gradient_scale = 1.0 / config.batch.global_ if shrink else 1.0
        self._replica_step = engine.compile(self._step)
        self._replica_failure = engine.compile(self._failure)
        self._replica_finish = engine.compile(self._finish)

    def __call__(
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
    ) -> Outcome:
        """Eager. `batches` has one entry for each local replica; `key` fixes the randomness of the update.

        `padded`: the update has padding, whoever computes it, and all compute their batch norm in the same way.
        """
        dtype = self.precision.variable
        common = (
            tf.constant(key, tf.int64),
            tf.constant(rate, dtype),
            tf.constant([float(stop)], tf.float64),
            tf.constant(prune_to, dtype),
        )
        parts = tuple(tuple(plan.parts(batch.images.shape[0])) for batch in batches)
        dense = not padded and all(bool(np.all(batch.mask)) for batch in batches)
        # Padding needs more memory, and comes too seldom to pay: with overlap it could not be mended if that is too much.
        overlap = overlap and dense
        fused = dense and plan.lanes is None and dtype != tf.float64
        form = dict(parts=parts, at_once=plan.side_by_side, fused=fused, remat=remat, overlap=overlap)
        applied, began = self._applied(), time.time()
        try:
            values = self._replica_step(batches, common, lanes=plan.lanes, **form)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if overlap:
                raise LostForMemoryError("while gradients were already on their way") from error
            self._check_untouched(applied, error)
            values = self._tell_failure(common, plan.lanes)
        if self.engine.ranks > 1:
            values = self._finish_patiently(values, common, applied)
        samples, loss, correct, stop_sum, failed, applied, norm, scale, ready = values.numpy().tolist()
        return Outcome(
            round(samples),
            loss,
            round(correct),
            bool(applied),
            norm,
            scale,
            stop_sum > 0,
            failed > 0,
            ready - began,
        )

    def _applied(self) -> list[int]:
        """Applied updates by each local replica: the first thing that applying an update changes."""
        return [int(copy) for copy in self.engine.copies(self.state.applied)]

    def _check_untouched(self, applied: list[int], error: Exception) -> None:
        if self._applied() != applied:
            raise LostForMemoryError("while the weights were changing") from error

    def _finish_patiently(self, sums, common, applied: list[int], *, again: bool = False) -> tf.Tensor:
        """Eager. The other ranks have these sums and use them: one without memory tries again, with nothing else in it."""
        try:
            return self._replica_finish([sums], common)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._check_untouched(applied, error)
            if again:
                raise LostForMemoryError("while the weights were to change") from error
        release_memory()
        return self._finish_patiently(sums, common, applied, again=True)

    def _tell_failure(self, common, lanes: int | None) -> tf.Tensor:
        """Eager. Zeros and the flag where the other ranks wait for this one's sums."""
        if self.engine.ranks == 1:
            return tf.constant([0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0], tf.float64)
        return self._replica_failure([tf.constant(0.0, self.precision.variable)], common, lanes=lanes)

    def _weights(self) -> dict[str, tf.Tensor]:
        """Traced, replica context."""
        return {name: tf.convert_to_tensor(variable) for name, variable in self.state.weights.items()}

    def _step(self, batch: Batch, common, *, parts, at_once, fused, remat, lanes, overlap) -> tf.Tensor:
        """Traced, replica context."""
        key, _, stop, _ = common
        weights = self._weights()
        scale = tf.convert_to_tensor(self.state.loss_scale) * self.gradient_scale
        arguments = dict(key=key, scale=scale, fused=fused, remat=remat)
        if lanes is None:
            # Replicas differ in parts only through their number of virtual batches.
            sizes = {sum(sizes): sizes for sizes in parts}[batch.images.shape[0]]
            sums: Sums | list = self.accumulator.block(
                weights, batch, parts=sizes, at_once=at_once, peel_last=overlap, **arguments
            )
        else:
            local = lanes // self.engine.replicas
            sums = lane_sums(self.accumulator, weights, batch, local_lanes=local, **arguments)
        if self.engine.ranks > 1 and not overlap:
            sums = all_at_once(sums)
        return self._sum(weights, sums, tf.concat([stop, [0.0]], axis=0), common)

    def _failure(self, zero: tf.Tensor, common, *, lanes) -> tf.Tensor:
        """Traced, replica context. As `_step`, but with zeros."""
        stop = common[2]
        weights = self._weights()
        zeros = self.accumulator.zeros(weights, zero)
        sums = zeros if lanes is None else empty_lanes(zeros, lanes // self.engine.replicas)
        return self._sum(weights, sums, tf.concat([stop, [1.0]], axis=0), common)

    def _sum(self, weights, sums: Sums | list[tf.Tensor], flags: tf.Tensor, common):
        """Traced, replica context. From the sums of this replica to those of all, and on one rank to the new weights.

        Several ranks do the rest in a call of its own: a rank that runs out of memory there has the sums and tries again.
        """
        ready = time_when_known([*sums.gradients, sums.counters] if isinstance(sums, Sums) else sums)
        if isinstance(sums, Sums):
            counters = tf.concat([sums.counters, flags], axis=0)
            gradients, (statistics, counters) = self.engine.sum(sums.gradients, [sums.statistics, counters])
        else:
            gradients, statistics, counters = sum_lanes(
                self.engine, sums, self.accumulator.zeros(weights, common[0])
            )
            with tf.control_dependencies([counters]):
                _, (flags,) = self.engine.sum([], [tf.identity(flags)])
            counters = tf.concat([counters, flags], axis=0)
        summed = (gradients, statistics, counters, ready)
        return summed if self.engine.ranks > 1 else self._finish(summed, common, weights)

    def _finish(self, summed, common, weights: dict[str, tf.Tensor] | None = None) -> tf.Tensor:
        """Traced, replica context. From the sums of all replicas to the new weights; `weights` if they were read before."""
        gradients, statistics, counters, ready = summed
        _, rate, _, prune_to = common
        weights = weights or self._weights()
        scale = tf.convert_to_tensor(self.state.loss_scale) * self.gradient_scale
        count = tf.cast(counters[0], self.precision.variable)
        # The norm is finite if and only if every gradient is (and far from overflow).
        norm = tf.linalg.global_norm(gradients)
        finite, whole = tf.math.is_finite(norm), counters[4] == 0.0
        apply = tf.logical_and(tf.logical_and(finite, whole), count > 0)
        norm = norm / (scale * count)
        tf.cond(
            apply,
            lambda: self.apply(
                weights, gradients, statistics / count, norm, 1.0 / (scale * count), rate, prune_to
            ),
            lambda: tf.constant(False),
        )
        if self.precision.loss_scaling:
            adapt_loss_scale(self.state, finite, whole)
        outcome = [apply, norm, self.state.loss_scale, ready]
        return tf.concat([counters, tf.stack([tf.cast(value, tf.float64) for value in outcome])], axis=0)


def all_at_once(sums: Sums | list[tf.Tensor]) -> Sums | list[tf.Tensor]:
    """Traced, replica context. Nothing leaves before all is there: a rank that fails until then has submitted nothing."""
    tensors = tf.nest.flatten(sums)
    with tf.control_dependencies(tensors):
        return tf.nest.pack_sequence_as(sums, [tf.identity(tensor) for tensor in tensors])


def time_when_known(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Traced, replica context. Seconds since 1970 at which the last of these was computed; nothing waits for it."""
    with tf.control_dependencies(list(tensors)):
        return clock()
