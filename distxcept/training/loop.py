"""The outer loop: it owns when things happen; `update.py` owns what an update is.

    go on from the newest snapshot, or start
    while updates are left:
        take the next update's samples
        start the update                                (skipped everywhere if non-finite anywhere)
        prepare the samples of the one after            (the devices compute meanwhile)
        read the outcome of the update before
        if anything depends on this update: read its outcome too
        if this ends an epoch, or an evaluation is due: evaluate; best, plateau, early stopping
        if a snapshot is due: save
        if anybody asked to stop: save and end          (all ranks learn it in the update's own reduction)
    save

Every decision rests on numbers that are equal on all ranks, so all ranks take it alike. Several ranks read every outcome
at once: they have to repeat an update together if one of them had too little memory.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distxcept.batching import BatchPlan
from distxcept.cluster.health import NoHealth
from distxcept.data.advice import NOTICEABLE, InputStats, advice
from distxcept.data.batch import Batch
from distxcept.data.dataset import Input, stored_pixels
from distxcept.data.host import free_memory
from distxcept.errors import DivergedError, SavingError, StopRequested
from distxcept.memory.telemetry import Telemetry
from distxcept.training.agreement import check_equal
from distxcept.training.bad_images import BadImages
from distxcept.training.build import Training
from distxcept.training.events import Observer
from distxcept.training.fitting import Fitting
from distxcept.training.meter import Meter
from distxcept.training.progress import Progress
from distxcept.training.pruning import prune_to
from distxcept.training.restore import restore
from distxcept.training.saving import Saver
from distxcept.training.schedule import learning_rate, update_key, warmup_notice
from distxcept.training.signals import StopSignals
from distxcept.training.stragglers import Stragglers
from distxcept.training.telling import Tell, end_facts, start_facts
from distxcept.training.update import Outcome, Pending
from distxcept.training.validating import Validation


@dataclass(frozen=True)
class Started:
    """An update that was given to the devices."""

    number: int
    """Of the update, counted from the start of the run."""
    batches: list[Batch]
    pending: Pending
    rate: float


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
        self.training, self.run_folder = training, run_folder
        self.config, self.engine = training.config, training.engine
        self.allow_config_change = allow_config_change
        self.signals = signals or StopSignals()
        self.health = health or NoHealth()
        self.telemetry = telemetry or Telemetry(every_seconds=None)
        self.progress = Progress()
        self._ahead: Started | None = None
        """An update whose outcome is not known yet."""
        self._saves = False
        self.tell = Tell(observer, chief=training.engine.is_chief, updates_done=lambda: self.progress.update)
        self.meter = Meter(training)
        self.stragglers = Stragglers(training.engine)
        self.bad_images = BadImages(training, run_folder, self.tell)
        self.saver = Saver(training, run_folder, self.tell)
        self.validation = Validation(training, self.tell, self.bad_images, self.saver)
        self.fitting = Fitting(
            training, run_folder, self.tell, settle=self.read_outcome, save=self._save_last
        )

    @property
    def plan(self) -> BatchPlan:
        """The one in use; an update that ran out of memory has left a smaller one."""
        return self.fitting.plan

    def run(self) -> dict[str, Any]:
        """Eager. Runs to the end, or raises StopRequested, DivergedError, DataError with everything saved."""
        self.progress = restore(self.training, self.run_folder, self.tell, self.allow_config_change)
        self._check_equal("at the start")
        self.saver.starts_at(self.progress.update)
        self.telemetry.starts_at(self.progress.update)
        self._tell_start()
        batches = self.read()
        self.signals.defer()
        self.health.updated(self.progress.update)
        with ExitStack() as at_the_end:
            at_the_end.callback(self._tell_notices)  # after the telemetry's last look
            at_the_end.enter_context(batches)
            at_the_end.enter_context(self.telemetry)
            while self.started < self.training.total_updates and not self.progress.finished:
                with self.meter.waiting_for_data():
                    batch = next(batches)
                number = self.started
                with self.health.updating():
                    stopped = self.run_update(batch, batches.prepare)
                self.health.updated(self.progress.update)
                self._tell_telemetry()
                if self._ahead is None:
                    self._between_updates(number)
                    if self._ends_epoch(number):
                        self._advise(batches)
                if stopped:
                    self._save_last()
                    raise StopRequested(
                        f"stopped on request after update {self.progress.update} of {self.training.total_updates}, "
                        "everything is saved; run the same command again to go on"
                    )
        self._save_last()
        summary = end_facts(self.training, self.progress, self.run_folder)
        self.tell.ended(summary)
        return summary

    def read(self) -> Input:
        """The samples of this process, from the next update of the run on. To be closed."""
        return Input(
            self.training.reading,
            self.plan,
            self.engine.local_replicas,
            first=self.progress.update,
            updates=self.training.total_updates - self.progress.update,
            devices=self.fitting.devices_for_images,
        )

    @property
    def started(self) -> int:
        """Updates that were given to the devices. The outcome of the last one may not be known yet."""
        return self.progress.update + (self._ahead is not None)

    def run_update(self, batches: list[Batch], prepare: Callable[[], None] = lambda: None) -> bool:
        """Starts an update and reads the outcome of the one before; its own too if anything depends on it.

        `prepare` is called while the devices compute. True if a rank asked to stop.
        """
        started = self._start(batches)
        began = time.time()
        prepare()
        prepared = time.time()
        stopped = self.read_outcome()
        self._ahead = started
        if self._depends_on(started.number):
            stopped |= self.read_outcome()
        # Several ranks know when their devices were done. A rank waits only from then on.
        done = started.pending.began + self.meter.last_work_seconds if self.engine.ranks > 1 else began
        self.meter.waited(max(0.0, prepared - max(began, done)))
        return stopped

    def _start(self, batches: list[Batch]) -> "Started":
        number = self.started
        rate = self.rate(number)
        updates_of_process = self.training.total_updates - number + self.meter.updates_of_process
        real = self.plan.real_samples(number % self.plan.updates_per_epoch)
        pending = self.fitting.run(
            number + 1,
            lambda: self.training.update.start(
                batches,
                self.plan,
                key=update_key(self.config.run.seed, number),
                rate=rate,
                prune_to=prune_to(self.config.optimizer.pruning, number),
                padded=real % self.plan.virtual_batch != 0,
                stop=self.signals.requested or self.saver.gave_up,
                overlap=self.fitting.overlaps(updates_of_process),
                remat=self.fitting.memory_plan.remat,
            ),
        )
        return Started(number, batches, pending, rate)

    def _depends_on(self, number: int) -> bool:
        """Whether something has to know the outcome of this update, the last one started, before the next one starts."""
        last, ends = self.started == self.training.total_updates, self._ends_epoch(number)
        self._saves = self.saver.due(self.started)
        near_limit = self.progress.nonfinite_in_a_row + 1 >= self.config.run.max_nonfinite_updates
        return (
            self.engine.ranks > 1
            or last
            or ends
            or self._saves
            or near_limit
            or self.signals.requested
            or self.validation.due(self.started, epoch_ends=ends, last=last)
            or self.started % self.config.engine.check_every == 0
        )

    def read_outcome(self) -> bool:
        """Reads the outcome of the update that was started last, unless it is known. True if a rank asked to stop."""
        if self._ahead is None:
            return False
        started, self._ahead = self._ahead, None
        outcome, progress, epoch_updates = started.pending.read(), self.progress, self.plan.updates_per_epoch
        progress.update += 1
        progress.samples += outcome.samples
        progress.bad_in_epoch += self.plan.real_samples(started.number % epoch_updates) - outcome.samples
        self.bad_images.find(started.batches)
        self._count_nonfinite(outcome)
        self.meter.add(outcome, started.rate)
        if outcome.samples:
            self.tell.updated(
                progress.update, outcome.loss_sum / outcome.samples, outcome.correct / outcome.samples
            )
        self._look_for_stragglers(started.batches)
        ends = self._ends_epoch(started.number) or progress.update == self.training.total_updates
        self.bad_images.check(progress, epoch_ends=ends)
        if ends or progress.update % self.config.run.log_every == 0:
            record = self.meter.take(progress, started.number // epoch_updates)
            if record is not None:
                self.tell.trained(record)
        return outcome.stop_requested

    def _look_for_stragglers(self, batches: list[Batch]) -> None:
        messages = self.stragglers.add(
            waited=self.meter.take_wait(),
            worked=self.meter.last_work_seconds,
            virtual_batches=sum(batch.images.shape[0] for batch in batches),
        )
        for message in messages:
            self.tell.happened("straggler", message)

    def _save_last(self) -> None:
        """With the outcome of every update that was started."""
        self.read_outcome()
        self.saver.save_last(self.progress)

    def _between_updates(self, number: int) -> None:
        """No update is under way, and the outcome of the last one, of this number, is known."""
        progress = self.progress
        last, ends = progress.update == self.training.total_updates, self._ends_epoch(number)
        if self.validation.due(progress.update, epoch_ends=ends, last=last):
            self._evaluate(number // self.plan.updates_per_epoch)
        if progress.update % self.config.engine.check_every == 0:
            self._check_equal(f"after update {progress.update}")
        if self._saves:
            self.saver.save(progress)

    def _check_equal(self, when: str) -> None:
        notice = check_equal(self.training.update.state, when)
        if notice:
            self.tell.happened("made_equal", notice)

    def _ends_epoch(self, number: int) -> bool:
        return (number + 1) % self.plan.updates_per_epoch == 0

    def _advise(self, batches: Input) -> None:
        """One sentence at the end of an epoch if this rank's input held up the training."""
        waited = self.meter.take_epoch_wait()
        if waited < NOTICEABLE:
            return
        stats = InputStats(
            wait_share=waited,
            stage_seconds=batches.stage_seconds(),
            pixels=stored_pixels(self.training.reading),
            image_size=self.config.model.image_size,
            samples=self.plan.samples,
            cached=self.config.data.cache != "none",
            free_bytes=free_memory(),
        )
        sentence = advice(stats)
        if sentence is not None:
            self.tell.happened("slow_input", sentence)

    def rate(self, number: int) -> float:
        scheduled = learning_rate(
            self.config.optimizer,
            update=number,
            updates_per_epoch=self.plan.updates_per_epoch,
            total_updates=self.training.total_updates,
            global_batch=self.plan.global_batch,
        )
        return scheduled * self.progress.rate_factor

    def _count_nonfinite(self, outcome: Outcome) -> None:
        if (
            outcome.applied or not outcome.samples
        ):  # without a single readable image there is no gradient at all
            self.progress.nonfinite_in_a_row = 0
            return
        self.progress.skipped_updates += 1
        self.progress.nonfinite_in_a_row += 1
        message = f"update {self.progress.update} was skipped on all replicas: its gradient is not finite; {self._remedy()}"
        self.tell.happened("skipped_update", message, loss_scale=outcome.loss_scale)
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

    def _remedy(self) -> str:
        if self.config.precision == "mixed_float16":
            return "in mixed_float16 some are normal, above all at the start: the loss scale adapts"
        return "if it comes again, lower optimizer.learning_rate or set optimizer.clip_norm"

    def _evaluate(self, epoch: int) -> None:
        update = self.progress.update
        with self.meter.paused(), self.telemetry.evaluating():
            result = self.validation.evaluate(self.plan.micro_batch, update=update)
            self.validation.judge(result, self.progress, epoch=epoch, rate=self.rate(update))

    def _tell_telemetry(self) -> None:
        self.telemetry.after_update(
            self.progress.update,
            micro_batch=self.fitting.memory_plan.micro,
            remat=self.fitting.memory_plan.remat,
            waited_seconds=self.meter.waited_seconds,
        )
        self._tell_notices()

    def _tell_notices(self) -> None:
        for notice in self.telemetry.take_notices():
            self.tell.happened(notice.kind, notice.message, **notice.details)

    def _tell_start(self) -> None:
        warmup = warmup_notice(self.config.optimizer, self.training.total_updates)
        for notice in [*self.training.notices, *([warmup] if warmup else [])]:
            self.tell.happened("notice", notice)
        self.tell.started(start_facts(self.training, self.progress, self.run_folder))
