"""RUN/report.html, written whenever a training ends: done, stopped or failed; RUN/predictions.json before it.

Predictions are written in between, too, but not of each evaluation: reading and drawing two dozen images takes a while.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from distxcept.errors import one_line
from distxcept.report.html import write_report
from distxcept.report.predictions_file import write_outcomes
from distxcept.report.runs import Entry, Run
from distxcept.training.events import Observer

if TYPE_CHECKING:
    from distxcept.data.sources import Source
    from distxcept.training.scores import SampleOutcomes


PREDICTIONS_EVERY_SECONDS = 600.0


class ReportFile(Observer):
    """As a context manager it outlives the training, and tells how that ended. A report is no reason to fail."""

    def __init__(
        self,
        run_folder: Path,
        warn: Callable[[str], None] = lambda message: None,
        describe: Callable[[Entry], None] = lambda found: None,
    ):
        """`describe` gets what predictions.json holds."""
        self._folder, self._warn, self._describe = run_folder, warn, describe
        self._started = False
        self._newest: tuple[SampleOutcomes, Source, int] | None = None
        """Outcomes that are not written yet."""
        self._predicted: float | None = None

    def started(self, start: dict[str, Any]) -> None:
        self._started = True

    def predicted(self, outcomes: "SampleOutcomes", source: "Source", update: int) -> None:
        self._newest = outcomes, source, update
        if self._predicted is None or time.monotonic() - self._predicted >= PREDICTIONS_EVERY_SECONDS:
            self._write_predictions()

    def _write_predictions(self) -> None:
        if self._newest is None:
            return
        newest, self._newest, self._predicted = self._newest, None, time.monotonic()
        try:
            found = write_outcomes(self._folder, *newest)
        except Exception as error:  # a full disk, or an image that is gone by now
            self._warn(f"warning: no predictions were written ({one_line(error, named=True)})")
            return
        try:
            self._describe(found)
        except Exception as error:
            self._warn(
                f"warning: the predictions are written, but were not drawn ({one_line(error, named=True)})"
            )

    def ended(self, summary: dict[str, Any]) -> None:
        """So that the panel at the end can name it."""
        self._write()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._started:
            self._write()

    def _write(self) -> None:
        self._write_predictions()
        try:
            write_report(Run(self._folder))
        except Exception as error:  # whatever it is, the training matters more
            self._started = False
            self._warn(f"warning: no report was written ({one_line(error, named=True)})")
