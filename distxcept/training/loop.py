"""The outer loop: it owns when things happen; `update.py` owns what an update is.

    go on from the newest snapshot, or start
    while updates are left:
        take the next update's samples
        update the weights                              (skipped everywhere if non-finite anywhere)
        if this ends an epoch, or an evaluation is due: evaluate; best, plateau, early stopping
        if a snapshot is due: save
        if anybody asked to stop: save and end          (all ranks learn it in the update's own reduction)
    save

Every decision rests on numbers that are equal on all ranks, so all ranks take it alike.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from distxcept.cluster.health import NoHealth
from distxcept.data.batches import ReplicaBatch, UpdateBatch
from distxcept.data.host import free_memory
from distxcept.data.pipeline import Updates, updates
from distxcept.data.waiting import advice
from distxcept.errors import (
    DataError,
    DistxceptError,
    DivergedError,
    DoesNotFitError,
    SavingError,
    StopRequested,
)
from distxcept.memory.limit import release_memory
from distxcept.memory.memory_plan import InUse, MemoryPlan, next_smaller, write_memory_plan
from distxcept.memory.telemetry import Telemetry
from distxcept.training.accumulate import Batch
from distxcept.training.bad_images import BadImages
from distxcept.training.build import Training
from distxcept.training.events import Observer, ValidationRecord
from distxcept.training.meter import Meter
from distxcept.training.out_of_memory import LostForMemoryError, is_out_of_memory
from distxcept.training.progress import Progress
from distxcept.training.restore import restore
from distxcept.training.saving import Saver
from distxcept.training.schedule import learning_rate
from distxcept.training.signals import StopSignals
from distxcept.training.stragglers import Stragglers
from distxcept.training.update import Outcome

OVERLAP_PAYS_AFTER = 200
"""Updates after which the longer tracing of an overlapped update has paid for itself."""


class Loop:
    def __init__(
        self,
        training: Training,
        run_folder: Path,
        observer: Observer,
        *,
        allow_config_change: bool = False,
        signals: StopSignals | None = None,
        health: NoHealth | None = None,
        telemetry: Telemetry | None = None,
    ):
        self.training, self.observer, self.run_folder = training, observer, run_folder
        self.config, self.engine, self.plan = training.config, training.engine, training.plan
        self.allow_config_change = allow_config_change
        self.signals = signals or StopSignals()
        self.health = health or NoHealth()
        self.telemetry = telemetry or Telemetry(every_seconds=None)
        self.progress = Progress()
        self.meter = Meter(training)
        self.stragglers = Stragglers(training.engine)
        self.bad_images = BadImages(training, observer)
        self.saver = Saver(training, run_folder, observer)
        self._lane_bounds: dict[int, list[tf.Tensor]] = {}
        self.memory_plan = MemoryPlan(self.plan.micro_batch, training.remat)
        self._updates_in_plan = 0

    def run(self) -> dict[str, Any]:
        """Eager. Runs to the end, or raises StopRequested, DivergedError, DataError with everything saved."""
        self.progress = restore(self.training, self.run_folder, self.observer, self.allow_config_change)
        self.training.update.state.check_equal("at the start")
        self.saver.starts_at(self.progress.update)
        total = self.training.total_updates
        self._tell_start(total)
        first_epoch, first_update = divmod(self.progress.update, self.plan.updates_per_epoch)
        batches = updates(
            self.training.train,
            self.plan,
            replicas=self.engine.local_replicas,
            image_size=self.config.model.image_size,
            seed=self.config.run.seed,
            first_epoch=first_epoch,
            first_update=first_update,
            on_bad=self.bad_images.found,
            devices=self._devices_for_images,
            **self.training.train_options,
        )
        self.signals.defer()
        self.health.updated(self.progress.update)
        with batches, self.telemetry:
            while self.progress.update < total and not self.progress.finished:
                with self.meter.waiting_for_data():
                    batch = next(batches)
                with self.health.updating():
                    stopped = self._one_update(
                        batch, total, stop=self.signals.requested or self.saver.gave_up
                    )
                self.health.updated(self.progress.update)
                self._look_for_stragglers(batch)
                self._tell_telemetry()
                self._after_update(batch, total)
                if self._ends_epoch(batch):
                    self._advise(batches)
                if stopped:
                    self.saver.save_last(self.progress)
                    raise StopRequested(
                        f"stopped on request after update {self.progress.update} of {total}, everything is saved; "
                        "run the same command again to go on"
                    )
        self._tell_notices()
        self.saver.save_last(self.progress)
        return self._summary(total)

    def _one_update(self, batch: UpdateBatch, total: int, *, stop: bool) -> bool:
        """One update; True if a rank asked to stop."""
        number = self.progress.update
        rate = self.rate(number, total)
        outcome = self._in_memory(
            lambda: self.training.update(
                self._to_device(batch),
                self.plan,
                key=update_key(self.config.run.seed, number),
                rate=rate,
                stop=stop,
                overlap=self._overlaps(number, total),
                remat=self.memory_plan.remat,
            )
        )
        progress = self.progress
        progress.update += 1
        progress.samples += outcome.samples
        progress.bad_in_epoch += batch.real_samples - outcome.samples
        self._count_nonfinite(outcome)
        self.meter.add(outcome, rate)
        if self.engine.is_chief and outcome.samples:
            self.observer.updated(
                progress.update, outcome.loss_sum / outcome.samples, outcome.correct / outcome.samples
            )
        return outcome.stop_requested

    def _look_for_stragglers(self, batch: UpdateBatch) -> None:
        messages = self.stragglers.add(
            waited=self.meter.last_wait_seconds,
            worked=self.meter.last_work_seconds,
            virtual_batches=sum(replica.images.shape[0] for replica in batch.replicas),
        )
        for message in messages:
            self._happened("straggler", message)

    def _in_memory(self, update: Callable[[], Outcome]) -> Outcome:
        """Runs the update again in smaller steps until it fits; the result is the same."""
        try:
            while (outcome := update()).out_of_memory:
                release_memory()
                # A rank that is an update behind the others (it failed after them) would be found here.
                self.training.update.state.check_equal("after running out of memory")
                self._shrink()
        except DistxceptError as error:
            if isinstance(error, LostForMemoryError):
                self._leave_smaller_plan(error)
            raise
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            lost = LostForMemoryError("again while the update was being prepared in smaller steps")
            self._leave_smaller_plan(lost)
            raise lost from error
        self._updates_in_plan += 1
        return outcome

    def _leave_smaller_plan(self, error: LostForMemoryError) -> None:
        """For the process that goes on with this run."""
        smaller = self._smaller_plan()
        if smaller is not None:
            write_memory_plan(self.run_folder, smaller, self.memory_plan, str(error))

    def _smaller_plan(self) -> MemoryPlan | None:
        now = InUse(self.memory_plan, self.plan.virtual_batch, self._most_samples())
        return next_smaller(now, remat_allowed=self.config.memory.remat != "off")

    def _shrink(self) -> None:
        old, number = self.memory_plan, self.progress.update + 1
        smaller = self._smaller_plan()
        if smaller is None:
            self.saver.save_last(self.progress)
            raise DoesNotFitError(
                f"update {number} ran out of memory with {old}: there is no smaller plan that keeps the training the "
                "same; everything is saved; a smaller batch.virtual, model.image_size or a mixed precision would "
                "need less: see distxcept plan"
            )
        self.memory_plan, self._updates_in_plan = smaller, 0
        self.plan = self.plan.with_micro(smaller.micro)
        remedy = f"batch.micro={smaller.micro}" + " memory.remat=on" * smaller.remat
        self._happened(
            "out_of_memory",
            f"update {number} ran out of memory with {old}; it runs again with {smaller}, to the same result; "
            f"set {remedy} to start so",
            micro=smaller.micro,
            remat=smaller.remat,
        )
        if self.engine.is_chief:
            self.observer.planned(self.plan, remat=smaller.remat)

    def _after_update(self, batch: UpdateBatch, total: int) -> None:
        progress, run = self.progress, self.config.run
        epoch_ends = self._ends_epoch(batch)
        last = progress.update == total
        self._check_bad_images(epoch_ends or last)
        if epoch_ends or last or progress.update % run.log_every == 0:
            record = self.meter.take(progress, batch.epoch)
            if self.engine.is_chief and record is not None:
                self.observer.trained(record)
        due = progress.update % run.evaluate_every == 0 if run.evaluate_every else epoch_ends
        if self.training.validation is not None and (due or last):
            self._evaluate(batch.epoch, total)
        if progress.update % self.config.engine.check_every == 0:
            self.training.update.state.check_equal(f"after update {progress.update}")
        if self.saver.due(progress.update):
            self.saver.save(self.progress)

    def _ends_epoch(self, batch: UpdateBatch) -> bool:
        return batch.update == self.plan.updates_per_epoch - 1

    def _advise(self, batches: Updates) -> None:
        """One sentence at the end of an epoch if this rank's input held up the training."""
        stats, seconds = batches.take_stats(), self.meter.take_epoch_seconds()
        sentence = advice(stats, seconds, samples=self.plan.samples, free_bytes=free_memory())
        if sentence is not None:
            self._happened("slow_input", sentence)

    def rate(self, number: int, total: int) -> float:
        scheduled = learning_rate(
            self.config.optimizer,
            update=number,
            updates_per_epoch=self.plan.updates_per_epoch,
            total_updates=total,
            global_batch=self.plan.global_batch,
        )
        return scheduled * self.progress.rate_factor

    def _overlaps(self, number: int, total: int) -> bool:
        """The first update after each change of plan reduces only when all its work is done.

        Memory then peaks as it always will, and a rank that has too little can still say so.
        """
        if self.engine.ranks == 1 or self.plan.lanes is not None or self.config.engine.overlap == "off":
            return False
        if self._updates_in_plan == 0:
            return False
        remaining = total - number + self.meter.updates_of_process
        return self.config.engine.overlap == "on" or remaining >= OVERLAP_PAYS_AFTER

    def _count_nonfinite(self, outcome: Outcome) -> None:
        if (
            outcome.applied or not outcome.samples
        ):  # without a single readable image there is no gradient at all
            self.progress.nonfinite_in_a_row = 0
            return
        self.progress.skipped_updates += 1
        self.progress.nonfinite_in_a_row += 1
        message = f"update {self.progress.update} was skipped on all replicas: its gradient is not finite"
        self._happened("skipped_update", message, loss_scale=outcome.loss_scale)
        limit = self.config.run.max_nonfinite_updates
        if self.progress.nonfinite_in_a_row >= limit:
            finite = all(np.all(np.isfinite(value)) for value in self.training.update.state.read().values())
            if finite:
                with suppress(SavingError):  # it has been told; that the run diverged matters more
                    self.saver.save_last(self.progress)
            raise DivergedError(
                f"{limit} updates in a row had a non-finite gradient (the last is {self.progress.update}); the last good "
                f"weights are in {self.saver.folder}; lower optimizer.learning_rate or set optimizer.clip_norm"
            )

    def _check_bad_images(self, epoch_ends: bool) -> None:
        """The count is known to all ranks by the update's own sums, so all end alike."""
        bad, data = self.progress.bad_in_epoch, self.config.data
        too_many = bad > data.max_bad_fraction * self.plan.samples or (bad and data.on_bad_image == "fail")
        if bad and (too_many or epoch_ends):
            self.bad_images.report()
        if too_many:
            self.engine.exchange(b"listed")  # no rank leaves before the chief has written the list
            raise DataError(
                f"{bad} of {self.plan.samples} images cannot be read, more than data.max_bad_fraction = "
                f"{data.max_bad_fraction if data.on_bad_image == 'skip' else 0} allows; they are listed in "
                f"{self.run_folder / 'bad_images.jsonl'}"
            )
        if epoch_ends:
            self.progress.bad_in_epoch = 0

    def _evaluate(self, epoch: int, total: int) -> None:
        assert self.training.validation is not None
        progress = self.progress
        with self.meter.paused(), self.telemetry.evaluating():
            result = self.training.evaluate(
                self.training.validation,
                image_size=self.config.model.image_size,
                batch_per_replica=self.plan.micro_batch,
                on_bad=self.bad_images.found,
                **self.training.validation_options,
            )
        if result.samples < len(self.training.validation):
            self.bad_images.report()
        metrics = result.metrics()
        metric = self.config.checkpoint.best_metric
        best = metric is not None and progress.best.better(metrics[metric], metric)
        if best:
            self.saver.mark_best()
        if self.engine.is_chief:
            self.observer.validated(
                ValidationRecord(
                    epoch=epoch,
                    update=progress.update,
                    samples=result.samples,
                    loss=result.loss,
                    accuracy=result.accuracy,
                    top5_accuracy=result.top5_accuracy,
                    best=best,
                )
            )
        if progress.reduce_on_plateau(self.config.optimizer, metrics, self.rate(progress.update, total)):
            self._happened(
                "plateau", f"validation no longer improves: learning rate × {progress.rate_factor:g}"
            )
        if progress.stop_early(self.config.run.early_stopping, metrics):
            self._happened(
                "early_stopping",
                f"validation has stopped improving: the run ends at update {progress.update}",
            )
        if best:
            self.saver.save(self.progress)

    def _to_device(self, batch: UpdateBatch) -> list[Batch]:
        virtual = self.plan.virtual_batches(batch.update)
        if virtual not in self._lane_bounds:
            self._lane_bounds[virtual] = self._bounds(virtual)
        return [
            to_batch(replica, bounds)
            for replica, bounds in zip(batch.replicas, self._lane_bounds[virtual], strict=True)
        ]

    def _devices_for_images(self) -> list[str] | None:
        """Where the next update's images go ahead of it; None: its micro steps fetch them, so that they need not all fit."""
        return self.engine.devices() if self.plan.micro_batch >= self._most_samples() else None

    def _most_samples(self) -> int:
        """Samples of one replica in a full update, at most."""
        return (
            max(len(block) for block in self.plan.blocks(self.plan.virtual_per_update))
            * self.plan.virtual_batch
        )

    def _bounds(self, virtual: int) -> list[tf.Tensor]:
        return [
            tf.constant(self.plan.local_lane_bounds(virtual, replica), tf.int32)
            for replica in self.engine.local_replicas
        ]

    def _tell_telemetry(self) -> None:
        self.telemetry.after_update(
            self.progress.update,
            micro_batch=self.memory_plan.micro,
            remat=self.memory_plan.remat,
            waited_seconds=self.meter.waited_seconds,
        )
        self._tell_notices()

    def _tell_notices(self) -> None:
        for notice in self.telemetry.take_notices():
            self._happened(notice.kind, notice.message, **notice.details)

    def _happened(self, kind: str, message: str, **details: Any) -> None:
        if self.engine.is_chief:
            self.observer.happened(kind, message, update=self.progress.update, **details)

    def _tell_start(self, total: int) -> None:
        if self.engine.is_chief:
            for notice in self.training.notices:
                self.observer.happened("notice", notice)
            self.observer.started(
                {
                    "total_updates": total,
                    "updates_per_epoch": self.plan.updates_per_epoch,
                    "update": self.progress.update,
                    "samples": self.plan.samples,
                    "classes": len(self.training.train.class_names),
                    "validation_samples": len(self.training.validation) if self.training.validation else 0,
                    "engine": self.engine.name,
                    "replicas": self.engine.replicas,
                    "devices": self.engine.devices(),
                    "batch": self.plan.equation(),
                }
            )

    def _summary(self, total: int) -> dict[str, Any]:
        summary = {
            "update": self.progress.update,
            "total_updates": total,
            "samples": self.progress.samples,
            "best": self.progress.best.best,
            "best_metric": self.config.checkpoint.best_metric,
            "skipped_updates": self.progress.skipped_updates,
            "run_folder": str(self.run_folder),
        }
        if self.engine.is_chief:
            self.observer.ended(summary)
        return summary


def update_key(seed: int, update: int) -> int:
    """Fixes the dropout of one update, whoever computes it."""
    digest = hashlib.sha256(f"update/{seed}/{update}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def to_batch(replica: ReplicaBatch, lane_bounds: tf.Tensor) -> Batch:
    first = tf.constant(replica.first_virtual, tf.int32)
    return Batch(replica.images, replica.labels, replica.weights, first, lane_bounds)
