"""From what the loop tells to what writers take. A writer that fails is left out from then on, with one warning."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any, Self

import numpy as np

from distxcept.errors import one_line
from distxcept.report.drawings import confusion_png, samples_png
from distxcept.report.runs import Entry
from distxcept.report.writers import About, Writer, open_writer
from distxcept.training.events import Observer, TrainRecord, ValidationRecord

HISTOGRAMS_EVERY_SECONDS = 60.0
"""At an evaluation, or in a run without any at a record; twenty million weights take a second or two."""
INSTALL = {"wandb": "pip install 'distxcept[wandb]'", "mlflow": "pip install 'distxcept[mlflow]'"}


class Written(Observer):
    """As a context manager it closes the writers however the training ends."""

    def __init__(
        self,
        names: Sequence[str],
        about: About,
        *,
        read_weights: Callable[[], Mapping[str, np.ndarray]] = dict,
        warn: Callable[[str], None] = lambda message: None,
        opening: Callable[[str, About], Writer] = open_writer,
    ):
        """Opens nothing before the training starts: only then it is known that this process may write."""
        self._names, self._about, self._opening = names, about, opening
        self._read_weights, self._warn = read_weights, warn
        self._writers: dict[str, Writer] = {}
        self._summary: dict[str, Any] = {}
        self._drawn: float | None = None
        self._validates, self._recorded = True, False

    def started(self, start: dict[str, Any]) -> None:
        self._validates = start["validation_samples"] > 0
        about = replace(self._about, updates_done=start["update"])
        for name in self._names:
            try:
                self._writers[name] = self._opening(name, about)
            except ImportError as error:
                self._warn(f"warning: nothing goes to {name}: {error}; {INSTALL.get(name, 'install it')}")
            except Exception as error:
                self._lost(name, error)

    def trained(self, record: TrainRecord) -> None:
        values = _finite(asdict(record))
        self._each(lambda writer: writer.scalars("train", record.update, values))
        if self._recorded and not self._validates:
            self._histograms(record.update)
        self._recorded = True

    def validated(self, record: ValidationRecord) -> None:
        values = _finite(asdict(record))
        self._each(lambda writer: writer.scalars("validation", record.update, values))
        self._histograms(record.update)

    def described(self, found: Entry) -> None:
        """`found` is what predictions.json holds."""
        step = found["update"]
        pictures = [
            ("confusion matrix", confusion_png(found), "rows: what it is; columns: what it was called"),
            ("most wrong", samples_png(found["worst"], found["classes"]), "called · what it is"),
            ("most surely right", samples_png(found["best"], found["classes"]), "called"),
        ]
        shown = [(name, png, caption) for name, png, caption in pictures if png is not None]

        def show(writer: Writer) -> None:
            for name, png, caption in shown:
                writer.image(name, step, png, caption)

        self._each(show)

    def happened(self, kind: str, message: str, **details: Any) -> None:
        if kind != "saved":
            step = details.get("update") or 0
            self._each(lambda writer: writer.text(kind, step, message))

    def ended(self, summary: dict[str, Any]) -> None:
        self._summary = summary

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._each(lambda writer: writer.close(self._summary))
        self._writers = {}

    def _histograms(self, update: int) -> None:
        now = time.monotonic()
        if self._writers and (self._drawn is None or now - self._drawn >= HISTOGRAMS_EVERY_SECONDS):
            self._drawn = now
            weights = cache(self._read_weights)  # off the device once, by the first writer
            self._each(lambda writer: writer.histograms(update, weights()))

    def _each(self, act: Callable[[Writer], None]) -> None:
        for name, writer in list(self._writers.items()):
            try:
                act(writer)
            except Exception as error:  # a server that is gone must not end a training
                del self._writers[name]
                self._lost(name, error)

    def _lost(self, name: str, error: Exception) -> None:
        reason = one_line(error, named=True)[:300]
        self._warn(f"warning: nothing more goes to {name} ({reason}); the training goes on")


def _finite(record: Mapping[str, Any]) -> dict[str, float]:
    """Its numbers; `update` is the step."""
    return {
        key: float(value)
        for key, value in record.items()
        if key != "update" and isinstance(value, int | float) and math.isfinite(value)
    }
