"""When a snapshot is written and what goes into it. Written by the chief alone: all ranks hold the same values.

    at the end of an update:  copy every variable               the training waits for this only
    in a thread:              write, sync, rename, point, prune  while the training goes on
    at the next save:         wait for the thread, then the same

A save that fails is told and tried again at the next time; after `checkpoint.max_failures` in a row the run ends.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distxcept import __version__
from distxcept.checkpoint.background import Background
from distxcept.checkpoint.compatibility import identity_digest
from distxcept.checkpoint.store import Store
from distxcept.cluster.machine import package_versions
from distxcept.errors import SavingError, one_line
from distxcept.training.events import Observer
from distxcept.training.progress import Progress

if TYPE_CHECKING:  # this module itself needs no TensorFlow
    from distxcept.training.build import Training

VERSIONED = ("tensorflow", "keras", "numpy", "horovod", "safetensors")
LAST_MOMENT_SECONDS = 10.0


class Saver:
    def __init__(self, training: "Training", run_folder: Path, observer: Observer):
        self._training, self._observer = training, observer
        self.store = Store(run_folder)
        self._identity = training.identity
        self._background: Background[Path] = Background("snapshot")
        self._last = time.monotonic()
        self._saved_update: int | None = None
        self._best = False
        self._failures = 0
        self._failure = ""

    @property
    def folder(self) -> Path:
        return self.store.folder

    @property
    def busy(self) -> bool:
        """A snapshot is being written."""
        return self._background.busy

    @property
    def gave_up(self) -> bool:
        """Too many saves have failed in a row: training on would only be lost. Known to the chief alone."""
        return self._failures >= self._training.config.checkpoint.max_failures

    def starts_at(self, update: int) -> None:
        """The state after `update` updates is on disk already; 0 is none."""
        self._saved_update = update if self.store.path(update).exists() else None

    def mark_best(self) -> None:
        """The next snapshot is the best so far."""
        self._best = True

    def due(self, update: int) -> bool:
        """By updates the ranks agree of themselves; by time only the chief, who writes, has to know."""
        self._tell()
        checkpoint = self._training.config.checkpoint
        if checkpoint.every_updates and update % checkpoint.every_updates == 0:
            return True
        minutes = (time.monotonic() - self._last) / 60
        return checkpoint.every_minutes is not None and minutes >= checkpoint.every_minutes

    def save(self, progress: Progress) -> None:
        """Takes the copy; the rest happens in the background."""
        self._last = time.monotonic()
        if not self._training.engine.is_chief:
            return
        self.wait()
        known, self._saved_update = self._saved_update == progress.update, progress.update
        best, self._best = self._best, False
        if known and not best:
            return
        update, state, tensors = progress.update, self._state(progress), self._training.update.state.read()
        keep = self._training.config.checkpoint.keep

        self._background.start(lambda: self.store.save(update, tensors, state, keep=keep, best=best))

    def wait(self, timeout_seconds: float | None = None) -> None:
        """Until the snapshot under way, if any, is on the disk or has failed."""
        self._background.wait(timeout_seconds)
        self._tell()

    def finish_soon(self) -> None:
        """The process is about to end in the middle of its work: a snapshot under way gets a moment to become whole."""
        self._background.wait(LAST_MOMENT_SECONDS)

    def save_last(self, progress: Progress) -> None:
        """Saves, and keeps every rank until it is done: a launcher ends the chief when another rank leaves early.

        SavingError, on every rank, if the state is not on the disk now.
        """
        self.save(progress)
        self.wait()
        lost = self._failure if self._training.engine.is_chief and self._failures else ""
        lost = self._training.engine.exchange(lost.encode())[0].decode()
        if lost:
            raise SavingError(
                f"the state after update {progress.update} could not be saved: {lost}; mend that, and run the same command "
                f"again to go on from the newest snapshot in {self.folder}"
            )

    def _tell(self) -> None:
        for outcome in self._background.take():
            if isinstance(outcome, Path):
                self._failures = 0
                self._observer.happened("saved", f"snapshot {outcome.name}", update=self._saved_update)
                continue
            self._failures += 1
            self._failure = one_line(outcome)
            failed, self._saved_update = self._saved_update, None
            limit = self._training.config.checkpoint.max_failures
            self._observer.happened(
                "save_failed",
                f"warning: no snapshot of update {failed} ({self._failure}); the older ones are kept, and training goes on "
                f"until {limit} saves in a row have failed: this is number {self._failures}",
                update=failed,
                failures=self._failures,
            )

    def _state(self, progress: Progress) -> dict[str, Any]:
        epoch, next_update = divmod(progress.update, self._training.plan.updates_per_epoch)
        return {
            "progress": progress.to_json(),
            "position": {"epoch": epoch, "next_update": next_update},
            "identity": self._identity,
            "config_digest": identity_digest(self._identity),
            "class_names": list(self._training.train.class_names),
            "versions": {"distxcept": __version__, **package_versions(VERSIONED)},
        }
