"""The one line that moves while an epoch trains, and how long it will still take. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

BAR_CELLS = 12


@dataclass
class Pace:
    """Seconds an update takes. The first update of a process traces the graph and tells nothing about the others."""

    first_update: int | None = None
    first_time: float = 0.0
    seconds_per_update: float | None = None

    def add(self, update: int, now: float) -> None:
        if self.first_update is None or update <= self.first_update:
            self.first_update, self.first_time = update, now
        else:
            self.seconds_per_update = (now - self.first_time) / (update - self.first_update)

    def left(self, updates: int) -> float | None:
        """Seconds; None where it is not known yet."""
        return None if self.seconds_per_update is None else max(0, updates) * self.seconds_per_update


def clock(seconds: float | None) -> str:
    """m:ss, h:mm:ss beyond an hour, days beyond two."""
    if seconds is None:
        return "–:––"
    whole = round(seconds)
    if whole >= 2 * 86400:
        return f"{whole / 86400:.1f} d"
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def bar(part: float, cells: int = BAR_CELLS) -> str:
    full = round(min(max(part, 0.0), 1.0) * cells)
    return "━" * full + "─" * (cells - full)


@dataclass(frozen=True)
class Part:
    """A piece of the line; where the terminal is narrow, the least important ones go first."""

    text: str
    importance: int


def fit(parts: Sequence[Part], width: int) -> str:
    """As many parts as fit side by side, in their order; the most important one always."""
    kept = [part for part in parts if part.text]
    while len(kept) > 1 and sum(len(part.text) + 2 for part in kept) - 2 > width:
        kept.remove(min(kept, key=lambda part: part.importance))
    return "  ".join(part.text for part in kept)[:width]


@dataclass(kw_only=True)
class Moment:
    """Where the training stands."""

    epoch: int
    epochs: int
    done: int
    """Updates of this epoch."""
    length: int
    loss: float
    accuracy: float
    images_per_second: float | None = None
    data_wait: float | None = None
    memory_bytes: int | None = None
    epoch_left: float | None = None
    run_left: float | None = None
    validating: bool = False


def live_line(now: Moment, width: int) -> str:
    speed = "" if now.images_per_second is None else f"{now.images_per_second:.1f} img/s"
    wait = "" if now.data_wait is None else f"wait {now.data_wait:.0%}"
    memory = "" if now.memory_bytes is None else f"{now.memory_bytes / 2**30:.2f} GiB"
    left = f"eta {clock(now.epoch_left)} / {clock(now.run_left)}"
    return fit(
        [
            Part(f"epoch {now.epoch}/{now.epochs}", 9),
            Part(bar(now.done / now.length), 1),
            Part(f"{now.done}/{now.length}", 6),
            Part(f"loss {now.loss:.4f}", 8),
            Part(f"top-1 {now.accuracy:.1%}", 7),
            Part(speed, 4),
            Part(wait, 3),
            Part(memory, 2),
            Part("validating …" if now.validating else left, 5),
        ],
        width,
    )
