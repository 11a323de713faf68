"""Results of `distxcept prove`: one row for each check or figure, and what follows from all of them. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

FORMAT = 1
"""Of prove.json. It grows when a field changes its meaning or goes; new rows and fields do not change it."""

Status = Literal["held", "broken", "failed", "measured", "skipped"]
MEANING: dict[Status, str] = {
    "held": "a guarantee was checked and holds",
    "broken": "a guarantee was checked and does not hold",
    "failed": "a check could not be completed, so the guarantee is not shown",
    "measured": "a figure without a guarantee",
    "skipped": "does not apply here, needs something that is not installed, or did not fit into the time",
}
BAD: tuple[Status, ...] = ("broken", "failed")


@dataclass(frozen=True)
class Row:
    id: str
    """SECTION.NAME, stable from version to version."""
    what: str
    status: Status
    value: float | None = None
    bound: float | None = None
    """`value` may be as large as this; None where nothing is guaranteed."""
    unit: str = ""
    note: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def section(self) -> str:
        return self.id.partition(".")[0]

    @property
    def figures(self) -> str:
        """Value and bound for the table."""
        if self.value is None:
            return ""
        value = f"{_short(self.value)}{self.unit and ' ' + self.unit}"
        return value if self.bound is None else f"{value} (≤ {_short(self.bound)})"

    def __str__(self) -> str:
        return ": ".join(part for part in (f"{self.id}: {self.what}", self.figures, self.note) if part)


def _short(value: float) -> str:
    if value == 0 or (0.01 <= abs(value) < 1e5):
        return f"{value:.4g}"
    return f"{value:.1e}"


def bounded(
    id: str, what: str, value: float, bound: float, *, unit: str = "", note: str = "", **data: Any
) -> Row:
    """A guarantee: `value` is at most `bound`. NaN and infinity break it."""
    if not math.isfinite(value):
        note = f"{value}{note and '; ' + note}"
        return Row(id, what, "broken", None, bound, unit, note, data)
    return Row(id, what, "held" if value <= bound else "broken", value, bound, unit, note, data)


def true(id: str, what: str, holds: bool, note: str = "", **data: Any) -> Row:
    """A guarantee without a figure."""
    return Row(id, what, "held" if holds else "broken", note=note, data=data)


def measured(id: str, what: str, value: float | None, unit: str = "", note: str = "", **data: Any) -> Row:
    return Row(id, what, "measured", value, None, unit, note, data)


def failed(id: str, what: str, why: str, **data: Any) -> Row:
    return Row(id, what, "failed", note=why, data=data)


def skipped(id: str, what: str, why: str) -> Row:
    return Row(id, what, "skipped", note=why)


@dataclass(frozen=True)
class Report:
    about: Mapping[str, Any]
    """Date, versions, devices, options."""
    rows: Sequence[Row]
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Of each section."""
    interrupted: bool = False

    @property
    def broken(self) -> list[Row]:
        return [row for row in self.rows if row.status in BAD]

    @property
    def verdict(self) -> str:
        if self.broken:
            return "broken"
        return "interrupted" if self.interrupted else "held"

    @property
    def exit_code(self) -> int:
        return 130 if self.interrupted else 1 if self.broken else 0

    def as_json(self) -> dict[str, Any]:
        """The content of prove.json; docs/prove.md describes it."""
        return {
            "format": FORMAT,
            "verdict": self.verdict,
            **self.about,
            "seconds": {name: round(value, 1) for name, value in self.seconds.items()},
            "counts": counts(self.rows),
            "broken": [row.id for row in self.broken],
            "rows": [{"section": row.section, **asdict(row)} for row in self.rows],
        }


def counts(rows: Iterable[Row]) -> dict[str, int]:
    found = dict.fromkeys(MEANING, 0)
    for row in rows:
        found[row.status] += 1
    return {str(status): number for status, number in found.items()}
