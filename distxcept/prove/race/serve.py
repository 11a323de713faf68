"""A contestant's side of the turns: build, warm up, say so, then run as many steps as asked and say how long they took.

    < 3                                   three steps, please
    > {"seconds": 4.2, "peak_bytes": …}   done
    < stop                                or the end of stdin

Several ranks are one contestant: rank 0 is asked and passes it on. Whatever libraries print goes to stderr.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from distxcept.cluster.tether import die_with_parent
from distxcept.memory.limit import forget_peak, peak_bytes

WARM_UP_STEPS = 2
"""The first is traced; with several ranks the second too, since only then gradients leave early."""
UPDATES_AT_START = WARM_UP_STEPS + 1
"""Until the first turn: one more is timed, to know how many fit into a turn."""


class Group(Protocol):
    """The ranks of a contestant."""

    @property
    def rank(self) -> int: ...

    def exchange(self, message: bytes) -> list[bytes]: ...


@dataclass(frozen=True)
class Alone:
    rank: int = 0

    def exchange(self, message: bytes) -> list[bytes]:
        return [message]


class Memory(Protocol):
    """Where the most memory that was held can be read."""

    def reset(self) -> object:
        """The peak counts from here."""

    def read(self) -> int: ...


class ProcessMemory:
    def reset(self) -> None:
        with suppress(OSError):  # the peak then includes the start
            forget_peak()

    def read(self) -> int:
        return peak_bytes()


@dataclass(frozen=True)
class Step:
    """What a contestant has built."""

    run: Callable[[int], float | None]
    """Runs so many steps to their end. Returns seconds where it times them itself."""
    images: int
    """Of one step, on all ranks."""
    group: Group = field(default_factory=Alone)
    memory: Memory = field(default_factory=ProcessMemory)
    facts: Callable[[], dict[str, Any]] = dict
    """More about the steps since the last call."""
    about: dict[str, Any] = field(default_factory=dict)
    """More about the contestant itself."""


def serve(build: Callable[[], Step]) -> None:
    die_with_parent(os.getppid())  # a rank ends with its mpirun
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    began = time.perf_counter()
    step = build()
    built = time.perf_counter()
    step.run(WARM_UP_STEPS)
    warm = time.perf_counter()
    seconds, peak = _measured(step, 1)
    about = {
        "images": step.images,
        "step_seconds": seconds,
        "peak_bytes": peak,
        "build_seconds": built - began,
        "warm_up_seconds": warm - built,
        **step.about,
    }
    _tell(answers, step, about)
    while (line := _asked(step.group)) not in ("", "stop"):
        step.facts()
        seconds, peak = _measured(step, int(line))
        _tell(answers, step, {"seconds": seconds, "peak_bytes": peak, **step.facts()})


def _asked(group: Group) -> str:
    mine = sys.stdin.readline().strip() if group.rank == 0 else ""
    return group.exchange(mine.encode())[0].decode()


def _measured(step: Step, number: int) -> tuple[float, int]:
    """Seconds of so many steps, and the most memory meanwhile, of all ranks."""
    step.memory.reset()
    began = time.perf_counter()
    timed = step.run(number)
    seconds = time.perf_counter() - began if timed is None else timed
    mine = step.memory.read()
    return seconds, sum(int(peak) for peak in step.group.exchange(str(mine).encode()))


def _tell(answers: Any, step: Step, answer: dict[str, Any]) -> None:
    if step.group.rank == 0:
        print(json.dumps(answer), file=answers, flush=True)
