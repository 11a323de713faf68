"""One line of the doctor's report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "warning", "problem"]
_ORDER: tuple[Status, ...] = ("ok", "warning", "problem")


@dataclass(frozen=True)
class Finding:
    """`warning`: training runs, but slower, less safely or not where one might think. `problem`: it will not."""

    area: str
    status: Status
    text: str
    remedy: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


def worst_status(findings: Iterable[Finding]) -> Status:
    return max((finding.status for finding in findings), key=_ORDER.index, default="ok")


def gib(number_of_bytes: int) -> str:
    return f"{number_of_bytes / 2**30:.1f} GiB"
