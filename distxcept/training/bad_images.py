"""Images that could not be read, gathered from all ranks and told once each; too many end the run."""

import json
from collections.abc import Sequence
from pathlib import Path

from distxcept.data.bad_samples import bad_indices, explain
from distxcept.data.batch import Batch
from distxcept.errors import DataError
from distxcept.training.build import Training
from distxcept.training.events import Observer
from distxcept.training.progress import Progress


class BadImages:
    def __init__(self, training: Training, run_folder: Path, observer: Observer):
        self._engine, self._observer = training.engine, observer
        self._data, self._samples = training.config.data, training.plan.samples
        self._list = run_folder / "bad_images.jsonl"
        self._reading = training.reading
        self._indices: set[int] = set()
        """Bad training samples whose reason is not known yet."""
        self._explained: set[int] = set()
        self._fresh: list[tuple[int, str, str]] = []
        self._known: set[str] = set()

    def find(self, batches: Sequence[Batch]) -> None:
        """Looks for samples of weight zero among those of this rank."""
        self._indices.update(bad_indices(batches))

    def found(self, index: int, path: str, reason: str) -> None:
        """An evaluation has found one on this rank."""
        self._fresh.append((index, path, reason))

    def report(self) -> None:
        """Every rank has to call it; the chief tells the observer what is new. Reads bad samples again for the reason."""
        self._fresh += explain(self._reading, sorted(self._indices - self._explained))
        self._explained |= self._indices
        self._indices = set()
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
