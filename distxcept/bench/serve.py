"""A contestant's side of the turns: build, warm up, say so, then run as many steps as asked and say how long they took.

    < 3                                   three steps, please
    > {"seconds": 4.2, "peak_bytes": …}   done
    < stop                                or the end of stdin

Several ranks are one contestant: rank 0 is asked and passes it on. Whatever libraries print goes to stderr.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

PR_SET_PDEATHSIG = 1
WARM_UP_STEPS = 2
"""The first is traced; with several ranks the second too, since only then gradients leave early."""


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


@dataclass(frozen=True)
class Step:
    """What a contestant has built."""

    run: Callable[[int], float | None]
    """Runs so many steps to their end. Returns seconds where it times them itself."""
    images: int
    """Of one step, on all ranks."""
    group: Group = field(default_factory=Alone)
    device_peak_bytes: Callable[[], int] | None = None
    """Of a GPU; else what the process holds counts."""
    facts: Callable[[], dict[str, Any]] = dict
    """More about the steps since the last call."""
    about: dict[str, Any] = field(default_factory=dict)
    """More about the contestant itself."""


def serve(build: Callable[[], Step]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)  # a rank ends with its mpirun
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
    forget_peak()
    began = time.perf_counter()
    timed = step.run(number)
    seconds = time.perf_counter() - began if timed is None else timed
    mine = step.device_peak_bytes() if step.device_peak_bytes else peak_bytes()
    return seconds, sum(int(peak) for peak in step.group.exchange(str(mine).encode()))


def _tell(answers: Any, step: Step, answer: dict[str, Any]) -> None:
    if step.group.rank == 0:
        print(json.dumps(answer), file=answers, flush=True)


def forget_peak() -> None:
    """The largest resident memory counts from here."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return  # some containers forbid it; the peak then includes the start


def peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
