"""One look at a running process: its cards, its memory, its share of the processors. No TensorFlow."""

import os
import time
from dataclasses import dataclass
from typing import Literal

import psutil

from distxcept.memory.nvml import GpuState

Phase = Literal["start", "train", "evaluate"]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Where the training is, told by its own thread."""

    phase: Phase = "start"
    update: int = 0
    """Updates of the run that are done."""
    micro_batch: int = 0
    remat: bool = False
    waited_seconds: float = 0.0
    """For data, since the process began."""


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Memory between two updates, when all that an update needs is given back: what grows here never comes back."""

    update: int
    host_bytes: int
    """Without pages of files that are only mapped: the kernel takes those back by itself."""
    device_bytes: tuple[int, ...] = ()
    """Held by TensorFlow on each card of this process."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    time: float
    """Seconds since 1970."""
    moment: Moment
    data_wait: float
    """Share of the time since the last sample that the training waited for data."""
    rss_bytes: int
    cpu_share: float
    """Of the cores that this process may use, since the last sample."""
    cards: tuple[GpuState, ...] = ()
    settled: Settled | None = None
    """None if there was no update since the last sample."""


class Host:
    """Reads what the kernel knows of this process."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._cores = max(1, len(os.sched_getaffinity(0)))
        self._last = time.monotonic(), self._cpu_seconds()

    def rss_bytes(self) -> int:
        return self._process.memory_info().rss

    def own_bytes(self) -> int:
        memory = self._process.memory_info()
        return memory.rss - memory.shared

    def cpu_share(self) -> float:
        """Since the last call."""
        (then, used_then), now = self._last, (time.monotonic(), self._cpu_seconds())
        self._last = now
        return max(0.0, now[1] - used_then) / max(now[0] - then, 1e-3) / self._cores

    def _cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system
