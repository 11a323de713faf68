"""Numbers as a person reads them. Pure."""

from typing import Any


def show_age(seconds: float) -> str:
    """One unit, the largest that is not zero."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def show_duration(seconds: float) -> str:
    """Two units: 75 → 1 min 15 s."""
    whole = max(0, round(seconds))
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def metric_text(metric: str | None, value: float | None) -> str:
    """`validation accuracy 94.00 %`; a dash where there is none."""
    if metric is None or value is None:
        return "–"
    name = metric.replace("_", " ")
    return f"{name} {value:.4f}" if metric.endswith("loss") else f"{name} {value:.2%}"


def number_text(value: Any) -> str:
    """Short, for a table; a dash for nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
