"""Images that could not be read, gathered from all ranks and told once each; too many end the run."""

import json
from pathlib import Path

from distxcept.errors import DataError
from distxcept.training.build import Training
from distxcept.training.events import Observer
from distxcept.training.progress import Progress


class BadImages:
    def __init__(self, training: Training, run_folder: Path, observer: Observer):
        self._engine, self._observer = training.engine, observer
        self._data, self._samples = training.config.data, training.plan.samples
        self._list = run_folder / "bad_images.jsonl"
        self._fresh: list[tuple[int, str, str]] = []
        self._known: set[str] = set()

    def found(self, index: int, path: str, reason: str) -> None:
        """Called by the pipeline of this rank."""
        self._fresh.append((index, path, reason))

    def report(self) -> None:
        """Every rank has to call it; the chief tells the observer what is new."""
        everywhere = self._engine.exchange(json.dumps(self._fresh).encode())
        self._fresh = []
        before = len(self._known)
        for index, path, reason in sorted(
            tuple(bad) for message in everywhere for bad in json.loads(message)
        ):
            if path not in self._known:
                self._observer.bad_image(index, path, reason)
            self._known.add(path)
        new = len(self._known) - before
        if new:
            self._observer.happened(
                "bad_images",
                f"{new} image{'s' * (new != 1)} could not be read, and count for nothing; {self._list} names them: mend or "
                "remove them (`distxcept data check CONFIG` finds all of them before a run; with data.on_bad_image=fail "
                "the first one ends it)",
                count=new,
            )

    def check(self, progress: Progress, *, epoch_ends: bool) -> None:
        """The count is known to all ranks by the update's own sums, so all end alike."""
        bad, data = progress.bad_in_epoch, self._data
        too_many = bad > data.max_bad_fraction * self._samples or (bad and data.on_bad_image == "fail")
        if bad and (too_many or epoch_ends):
            self.report()
        if too_many:
            self._engine.exchange(b"listed")  # no rank leaves before the chief has written the list
            raise DataError(
                f"{bad} of {self._samples} images cannot be read, more than data.max_bad_fraction = "
                f"{data.max_bad_fraction if data.on_bad_image == 'skip' else 0} allows; they are listed in "
                f"{self._list}"
            )
        if epoch_ends:
            progress.bad_in_epoch = 0
