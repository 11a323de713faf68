"""Horovod's timeline (HOROVOD_TIMELINE=FILE): how long the gradients of an update were on their way, and what was hidden.

Horovod writes a trace for chrome://tracing, a row for each tensor. The last thing that an update reduces are its counters,
which are known only when the backward pass has ended: where they are first asked for, everything of the gradients that
is still on its way is waited for.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_GRADIENTS = re.compile(r"distxcept_gradients_\d+$")
_COUNTERS = "distxcept_exact_1"


@dataclass(frozen=True)
class Reduction:
    """Of one update, in seconds."""

    busy_seconds: float
    """In which at least one reduction of gradients ran."""
    exposed_seconds: float
    """From the end of the backward pass to the end of the last reduction."""

    @property
    def hidden_part(self) -> float:
        """Of the reduction, beside the backward pass."""
        return max(0.0, 1 - self.exposed_seconds / self.busy_seconds) if self.busy_seconds else 0.0


@dataclass(frozen=True)
class Span:
    begin: float
    end: float


def read_timeline(path: Path) -> list[Reduction]:
    """Of each update in the trace, in order; a file that was not closed is read as far as it goes."""
    gradients: list[Span] = []
    ends: list[float] = []
    last_ends: list[float] = []
    for tensor, operation, begin, end in _operations(_events(path.read_text(encoding="utf-8"))):
        if _GRADIENTS.search(tensor) and operation == "ALLREDUCE":
            gradients.append(Span(begin, end))
        elif tensor.endswith(_COUNTERS):
            if operation.startswith("NEGOTIATE"):
                ends.append(begin)
            elif operation == "ALLREDUCE":
                last_ends.append(end)
    found, start = [], 0.0
    for ready, finished in zip(sorted(ends), sorted(last_ends), strict=False):
        mine = [span for span in gradients if start < span.end <= finished or start <= span.begin < finished]
        start = finished
        if mine:
            last = max(span.end for span in mine)
            found.append(Reduction(_covered(mine) / 1e6, max(0.0, last - ready) / 1e6))
    return found


def _events(text: str) -> list[dict[str, Any]]:
    text = text.strip().rstrip(",")
    try:
        return json.loads(text if text.endswith("]") else text + "]")
    except ValueError:
        whole = text.rpartition("}\n")[0] or text.rpartition("},")[0]
        return json.loads(whole.rstrip(",") + "}]")


def _operations(events: list[dict[str, Any]]) -> Iterator[tuple[str, str, float, float]]:
    """Tensor, operation, begin and end in µs. Operations of a tensor are nested; an end closes the innermost."""
    names: dict[Any, str] = {}
    opened: dict[Any, list[tuple[str, float]]] = {}
    for event in events:
        row, phase = event.get("pid"), event.get("ph")
        if phase == "M" and event.get("name") == "process_name":
            names[row] = event["args"].get("name", "")  # one row only tells when the trace began
        elif phase == "B":
            opened.setdefault(row, []).append((event["name"], event["ts"]))
        elif phase == "E" and opened.get(row):
            operation, begin = opened[row].pop()
            yield names.get(row, ""), operation, begin, event["ts"]


def _covered(spans: list[Span]) -> float:
    """Length of the union."""
    total, reached = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.begin):
        total += max(0.0, span.end - max(span.begin, reached))
        reached = max(reached, span.end)
    return total
