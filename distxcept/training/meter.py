"""Speed, waiting and means over the updates since the last look."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from distxcept.training.build import Training
from distxcept.training.events import TrainRecord
from distxcept.training.peak import Peak
from distxcept.training.progress import Progress
from distxcept.training.update import Outcome


class Meter:
    def __init__(self, training: Training):
        self._peak = Peak(training.engine.devices()[0])
        self.updates_of_process = 0
        self.waited_seconds = 0.0
        """For data, since the process began."""
        self._epoch_seconds = self._epoch_waited = 0.0
        self.last_work_seconds = 0.0
        """Of the last update, on this rank: computing what the reduction needs."""
        self._wait_seconds = 0.0
        self._start()

    def _start(self) -> None:
        self._began = time.perf_counter()
        self._waited = self._away = 0.0
        self._samples = self._correct = 0
        self._loss = self._norm = self._rate = 0.0
        self._updates = 0

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.waited(time.perf_counter() - began)

    def waited(self, seconds: float) -> None:
        """For the data of the next update."""
        self._wait_seconds += seconds
        self._waited += seconds
        self.waited_seconds += seconds

    def take_wait(self) -> float:
        """Seconds that the last update waited for its data."""
        taken, self._wait_seconds = self._wait_seconds, 0.0
        return taken

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time that is no part of training, such as an evaluation."""
        began = time.perf_counter()
        yield
        self._away += time.perf_counter() - began

    def add(self, outcome: Outcome, rate: float) -> None:
        self.updates_of_process += 1
        self._updates += 1
        self._samples += outcome.samples
        self._correct += outcome.correct
        self._loss += outcome.loss_sum
        self._norm, self._rate = outcome.gradient_norm, rate
        self.last_work_seconds = outcome.work_seconds

    def take(self, progress: Progress, epoch: int) -> TrainRecord | None:
        """The record since the last call; None if there was no update in between."""
        if not self._updates:
            return None
        seconds = max(time.perf_counter() - self._began - self._away, 1e-9)
        samples = max(self._samples, 1)
        record = TrainRecord(
            epoch=epoch,
            update=progress.update,
            samples=progress.samples,
            loss=self._loss / samples,
            accuracy=self._correct / samples,
            learning_rate=self._rate,
            gradient_norm=self._norm,
            images_per_second=self._samples / seconds,
            data_wait=min(1.0, self._waited / seconds),
            peak_memory=self._peak.read(),
            skipped_updates=progress.skipped_updates,
        )
        self._epoch_seconds += seconds
        self._epoch_waited += min(self._waited, seconds)
        self._start()
        return record

    def take_epoch_wait(self) -> float:
        """Share of the time since the last call in which the training waited for data."""
        share = self._epoch_waited / self._epoch_seconds if self._epoch_seconds else 0.0
        self._epoch_seconds = self._epoch_waited = 0.0
        return share
