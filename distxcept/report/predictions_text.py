"""Predictions as text, a line for each file: for people, for spreadsheets, for programs. Pure.

`class_names` are all that there are: an answer is written before the next one is known.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from distxcept.report.plain_text import plain_line

WIDEST_LABEL = 24
"""What is longer moves the rest of its own line only."""


class Predicted(Protocol):
    """What is known of one file."""

    @property
    def path(self) -> str: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def probabilities(self) -> tuple[float, ...]: ...
    @property
    def error(self) -> str | None: ...


def table_lines(predictions: Iterable[Predicted], top: int, class_names: Sequence[str]) -> Iterator[str]:
    """The name comes last: of everything in a line, only its length is not known. Bad files are told on stderr instead."""
    width = min(WIDEST_LABEL, max(len(plain_line(name)) for name in class_names))
    for one in predictions:
        if one.error is None:
            labels = [plain_line(label) for label in one.labels]
            pairs = zip(labels, one.probabilities, strict=True)
            answers = "  ".join(f"{probability:6.1%} {label:{width}}" for label, probability in pairs)
            yield f"{answers}  {plain_line(one.path)}"


def csv_lines(predictions: Iterable[Predicted], top: int, class_names: Sequence[str]) -> Iterator[str]:
    """A line of column names, then one for each file, bad ones with their error."""
    ranks = [""] + [f"_{rank}" for rank in range(2, top + 1)]
    yield _csv_line(
        ["path", *(f"{name}{rank}" for rank in ranks for name in ("label", "probability")), "error"]
    )
    for one in predictions:
        cells: list[str] = []
        for label, probability in zip(one.labels, one.probabilities, strict=True):
            cells += [label, f"{probability:.6f}"]
        yield _csv_line([one.path, *cells, *[""] * (2 * top - len(cells)), one.error or ""])


def json_lines(predictions: Iterable[Predicted], top: int, class_names: Sequence[str]) -> Iterator[str]:
    """An object for each file: `path` and `predictions`, or `path` and `error`."""
    for one in predictions:
        if one.error is not None:
            yield json.dumps({"path": one.path, "error": one.error})
            continue
        pairs = zip(one.labels, one.probabilities, strict=True)
        answers = [{"label": label, "probability": round(value, 6)} for label, value in pairs]
        yield json.dumps({"path": one.path, "predictions": answers})


def _csv_line(cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


WRITERS = {"table": table_lines, "csv": csv_lines, "jsonl": json_lines}
