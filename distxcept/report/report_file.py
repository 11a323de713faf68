"""RUN/report.html, written whenever a training ends: done, stopped or failed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from distxcept.report.html import write_report
from distxcept.report.runs import Run
from distxcept.training.events import Observer


class ReportFile(Observer):
    """As a context manager it outlives the training, and tells how that ended. A report is no reason to fail."""

    def __init__(self, run_folder: Path, warn: Callable[[str], None] = lambda message: None):
        self._folder, self._warn = run_folder, warn
        self._started = False

    def started(self, start: dict[str, Any]) -> None:
        self._started = True

    def ended(self, summary: dict[str, Any]) -> None:
        """So that the panel at the end can name it."""
        self._write()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._started:
            self._write()

    def _write(self) -> None:
        try:
            write_report(Run(self._folder))
        except Exception as error:  # whatever it is, the training matters more
            self._started = False
            self._warn(f"warning: no report was written ({type(error).__name__}: {error})")
