"""When a snapshot is written and what goes into it."""

import time
from pathlib import Path

from distxcept.checkpoint.compatibility import training_identity
from distxcept.checkpoint.snapshot import save_snapshot
from distxcept.training.build import Training
from distxcept.training.events import Observer
from distxcept.training.progress import Progress


class Saver:
    """Written by the chief alone: all ranks hold the same values."""

    def __init__(self, training: Training, run_folder: Path, observer: Observer):
        self._training, self._observer = training, observer
        self.folder = run_folder / "checkpoints"
        self._identity = training_identity(training.config, training.data_digest)
        self._last = time.monotonic()
        self._saved_update: int | None = None
        self._best = False

    def starts_at(self, update: int) -> None:
        """The state after `update` updates is on disk already; 0 is none."""
        self._saved_update = update or None

    def mark_best(self) -> None:
        """The next snapshot is the best so far."""
        self._best = True

    def due(self, update: int) -> bool:
        """By updates the ranks agree of themselves; by time only the chief, who writes, has to know."""
        checkpoint = self._training.config.checkpoint
        if checkpoint.every_updates and update % checkpoint.every_updates == 0:
            return True
        minutes = (time.monotonic() - self._last) / 60
        return checkpoint.every_minutes is not None and minutes >= checkpoint.every_minutes

    def save_last(self, progress: Progress) -> None:
        """Saves, and keeps every rank until it is done: a launcher ends the chief when another rank leaves early."""
        self.save(progress)
        self._training.engine.exchange(b"saved")

    def save(self, progress: Progress) -> None:
        self._last = time.monotonic()
        known, self._saved_update = self._saved_update == progress.update, progress.update
        best, self._best = self._best, False
        if known or not self._training.engine.is_chief:
            return
        state = {
            "progress": progress.to_json(),
            "identity": self._identity,
            "class_names": list(self._training.train.class_names),
        }
        path = save_snapshot(
            self.folder,
            progress.update,
            self._training.update.state.read(),
            state,
            keep=self._training.config.checkpoint.keep,
            best=best,
        )
        self._observer.happened("saved", f"snapshot {path.name}", update=progress.update)
