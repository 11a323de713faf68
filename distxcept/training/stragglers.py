"""Ranks that all others wait for, found without a collective in any update but every few of them.

A rank's own time of an update runs from the end of the last one, when all ranks are level, until its sums are ready for
the reduction: waiting for data, and computing. A rank with more virtual batches than the others may take longer by as much;
one with fewer gets no bonus, since a part of the time is the same for all.
"""

import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean, median

from distxcept.engines import Engine
from distxcept.memory.nvml import read_cards
from distxcept.training.own_cards import places_of_devices

EVERY = 5
"""Updates of a window; the ranks compare notes at its end."""
IN_A_ROW = 3
"""Windows in which a rank has to be slow before it is named: a moment's disturbance is nobody's fault."""
FACTOR = 1.5
FIRST_UPDATES = 2
"""Of a process, which trace and are not counted."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """What a rank did in the last few updates."""

    host: str
    seconds: float
    """Of an update, as the rank needs them itself."""
    virtual_batches: float
    data_wait: float
    """Share of it that was waiting for data."""
    cores: float
    """CPU time by time that passed."""
    throttling: list[str]


def find_slow(windows: Sequence[Sequence[Window | None]]) -> list[int]:
    """Pure. Ranks that were slower than the median of the others in every one of the last windows, each a list by rank."""
    if len(windows) < IN_A_ROW:
        return []
    slow_in_each = [
        {rank for rank in range(len(window)) if _is_slow(window, rank)} for window in windows[-IN_A_ROW:]
    ]
    return sorted(set.intersection(*slow_in_each))


def _is_slow(window: Sequence[Window | None], rank: int) -> bool:
    own = window[rank]
    return own is not None and bool(_others(window, rank)) and _slowness(own, _others(window, rank)) > FACTOR


def _slowness(own: Window, others: Sequence[Window]) -> float:
    """Its time by what one would expect of its share."""
    more_work = max(1.0, own.virtual_batches / median(other.virtual_batches for other in others))
    return own.seconds / (median(other.seconds for other in others) * more_work)


def _others(window: Sequence[Window | None], rank: int) -> list[Window]:
    return [other for number, other in enumerate(window) if other is not None and number != rank]


def describe(window: Sequence[Window | None], rank: int) -> str:
    """Pure. The rank, its host, and in what it differs from the others."""
    own = window[rank]
    assert own is not None
    others = _others(window, rank)
    factor = _slowness(own, others)
    differs = []
    usual_wait, usual_cores = median(o.data_wait for o in others), median(o.cores for o in others)
    if own.data_wait > usual_wait + 0.2:
        differs.append(f"it waits for data {own.data_wait:.0%} of its time, the others {usual_wait:.0%}")
    if own.throttling:
        differs.append(f"its card is throttled ({', '.join(own.throttling)})")
    if own.cores < 0.75 * usual_cores:
        differs.append(f"it gets {own.cores:.1f} CPU cores, the others {usual_cores:.1f}")
    reason = (
        "; ".join(differs)
        or "nothing that can be seen from here differs: look for other work on that host or card"
    )
    return f"rank {rank} on {own.host} is steadily {factor:.1f} × slower than the others, who wait for it: {reason}"


class Stragglers:
    """Every rank adds its times; all learn together who is slow. Names a rank once, and again if it had recovered."""

    def __init__(self, engine: Engine):
        self._engine, self._places = engine, places_of_devices(engine.devices())
        self._seconds: list[float] = []
        self._waits: list[float] = []
        self._virtual_batches: list[int] = []
        self._updates = 0
        self._windows: list[list[Window | None]] = []
        self._named: set[int] = set()
        self._mark()

    def add(self, *, waited: float, worked: float, virtual_batches: int) -> list[str]:
        """After every update, on every rank. Messages, equal on all ranks."""
        if self._engine.ranks == 1:
            return []
        self._updates += 1
        if self._updates <= FIRST_UPDATES:
            self._mark()
            return []
        if virtual_batches:
            self._seconds.append(waited + worked)
            self._virtual_batches.append(virtual_batches)
            self._waits.append(waited / max(waited + worked, 1e-9))
        if (self._updates - FIRST_UPDATES) % EVERY:
            return []
        gathered = self._engine.exchange(json.dumps(self._take()).encode())
        parsed = [json.loads(text) for text in gathered]
        self._windows = [*self._windows, [Window(**fields) if fields else None for fields in parsed]][
            -IN_A_ROW:
        ]
        slow = set(find_slow(self._windows))
        messages = [describe(self._windows[-1], rank) for rank in sorted(slow - self._named)]
        self._named = slow
        return messages

    def _take(self) -> dict | None:
        seconds, waits, virtual_batches = self._seconds, self._waits, self._virtual_batches
        self._seconds, self._waits, self._virtual_batches = [], [], []
        cores = (_cpu_seconds() - self._cpu) / max(time.perf_counter() - self._began, 1e-9)
        self._mark()
        if not seconds:
            return None
        window = Window(
            host=socket.gethostname(),
            seconds=median(seconds),
            virtual_batches=mean(virtual_batches),
            data_wait=mean(waits),
            cores=cores,
            throttling=self._throttling(),
        )
        return asdict(window)

    def _mark(self) -> None:
        self._cpu, self._began = _cpu_seconds(), time.perf_counter()

    def _throttling(self) -> list[str]:
        cards = read_cards(self._places)
        return sorted({why for card in cards for why in card.throttling})


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system
