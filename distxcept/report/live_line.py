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


def short(number: float) -> str:
    """Two digits or more, in the least room."""
    return f"{number:.1f}" if number < 9.95 else f"{number:.0f}"


def short_clock(seconds: float | None) -> str:
    """m:ss, hours beyond an hour, days beyond two."""
    if seconds is None or round(seconds) < 3600:
        return clock(seconds)
    hours = seconds / 3600
    return f"{short(hours)}h" if hours < 48 else f"{short(hours / 24)}d"


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
    """The fullest of four forms that fits; of the shortest one, as much as fits."""
    bare = _wide(now)
    count, share = f"{now.done}/{now.length}", f"{now.done / now.length:.0%}"
    for texts in (
        [bare[0], bar(now.done / now.length), *bare[1:]],
        bare,
        [part.text for part in _compact(now, count, decimals=4)],
    ):
        line = "  ".join(text for text in texts if text)
        if len(line) <= width:
            return line
    return fit(_compact(now, share, decimals=3), width)


def _wide(now: Moment) -> list[str]:
    return [
        f"epoch {now.epoch}/{now.epochs}",
        f"{now.done}/{now.length}",
        f"loss {now.loss:.4f}",
        f"top-1 {now.accuracy:.1%}",
        "" if now.images_per_second is None else f"{now.images_per_second:.1f} img/s",
        "" if now.data_wait is None else f"wait {now.data_wait:.0%}",
        "" if now.memory_bytes is None else f"{now.memory_bytes / 2**30:.2f} GiB",
        "validating …" if now.validating else f"eta {clock(now.epoch_left)} / {clock(now.run_left)}",
    ]


def _compact(now: Moment, position: str, *, decimals: int) -> list[Part]:
    """For 80 columns; `position` is that in the epoch."""
    left = f"{short_clock(now.epoch_left)}/{short_clock(now.run_left)}"
    return [
        Part(f"{now.epoch}/{now.epochs} {position}", 8),
        Part(f"loss {now.loss:.{decimals}f}", 7),
        Part(f"top-1 {now.accuracy:.1%}", 6),
        Part("" if now.images_per_second is None else f"{short(now.images_per_second)} img/s", 4),
        Part("" if now.data_wait is None else f"wait {now.data_wait:.0%}", 3),
        Part("" if now.memory_bytes is None else f"{short(now.memory_bytes / 2**30)} GiB", 2),
        Part("validating …" if now.validating else left, 5),
    ]
