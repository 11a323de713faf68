"""Contestants take turns, so that whatever else happens on the machine touches all of them alike. No TensorFlow.

    each contestant is a process of its own (threads and kernels are chosen once a process), or several ranks
    start one after the other; whoever is not on turn is stopped by a signal and takes no processor time
    in each round everybody gets a turn of about equal length; the order moves on by one from round to round

What counts are ratios within a round, and of these the median. Many short turns say more than a few long ones: on a
machine that others use too, speed changes within seconds. Where not all fit into memory at once, they come in
groups, and the reference is in each of them.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

import psutil

from distxcept.cluster.tether import die_with_parent
from distxcept.prove.race.setting import Setting

MEMORY_PART = 0.8
"""Of the free memory that contestants may hold together."""
STOP_SECONDS = 20.0
FREEZE_SECONDS = 2.0
STDERR_LINES = 3


class ContestantFailed(Exception):
    """It ended before it answered; says why."""


@dataclass(frozen=True)
class Contestant:
    name: str
    command: tuple[str, ...]
    """The setting's JSON is added at the end."""
    environ: Mapping[str, str | None] = field(default_factory=dict)
    """None removes a variable."""
    about: str = ""

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        changed = {name: value for name, value in own.items() if name not in self.environ}
        return changed | {name: value for name, value in self.environ.items() if value is not None}


@dataclass(frozen=True)
class Turn:
    steps: int
    images: int
    seconds: float
    peak_bytes: int
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class Result:
    contestant: Contestant
    turns: list[Turn] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    """To the reference in the same round."""
    start: dict[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def speed(self) -> Spread:
        return Spread.of([turn.images_per_second for turn in self.turns])

    @property
    def ratio(self) -> Spread:
        return Spread.of(self.ratios)

    @property
    def peak_bytes(self) -> int:
        return max(turn.peak_bytes for turn in self.turns)


class Racing:
    """A contestant's process, or tree of processes."""

    def __init__(self, contestant: Contestant, setting: Setting):
        self.contestant, driver = contestant, os.getpid()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            [*contestant.command, setting.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=contestant.environment(os.environ),
            text=True,
            start_new_session=True,
            # One that is stopped would never learn that nobody asks any more.
            preexec_fn=lambda: die_with_parent(driver),
        )

    def ready(self) -> dict[str, Any]:
        """Waits until it has warmed up; then it is stopped until its turn."""
        answer = self._answer()
        self._freeze()
        return answer

    def run(self, steps: int, images: int) -> Turn:
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        try:
            with suppress(BrokenPipeError):
                self._process.stdin.write(f"{steps}\n")
                self._process.stdin.flush()
            answer = self._answer()
        finally:
            self._freeze()
        return Turn(steps, images * steps, answer.pop("seconds"), answer.pop("peak_bytes"), answer)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ContestantFailed(self._why())
        try:
            return json.loads(line)
        except ValueError:
            raise ContestantFailed(f"it said {line[:200]!r}") from None

    def _why(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        return f"ended with {code}: {' / '.join(lines[-STDERR_LINES:])[-500:]}"

    def _tree(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            return [*process.children(recursive=True), process]
        return []

    def _signal(self, number: signal.Signals) -> None:
        for process in self._tree():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _freeze(self) -> None:
        """A signal takes a moment to arrive: nobody else may start before."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + FREEZE_SECONDS
        while any(_moves(process) for process in self._tree()) and time.monotonic() < deadline:
            time.sleep(0.001)

    def stop(self) -> None:
        """Asks it to end; what has not ended after some seconds is killed."""
        tree = self._tree()
        self._signal(signal.SIGCONT)
        with suppress(OSError, ValueError, subprocess.TimeoutExpired):
            self._process.communicate("stop\n", timeout=STOP_SECONDS)
        for process in psutil.wait_procs(tree, timeout=0.1)[1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._errors.close()


def _moves(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    return False


def take_turns(
    contestants: Sequence[Contestant],
    setting_of: Callable[[Contestant], Setting],
    *,
    rounds: int,
    turn_seconds: float,
    notice: Callable[[str], None] = lambda message: None,
) -> list[Result]:
    """The first is the reference. One that cannot run has its failure in place of turns."""
    reference, *others = (Result(contestant) for contestant in contestants)
    waiting = list(others)
    while True:
        waiting = _one_group(
            reference, waiting, setting_of, rounds=rounds, turn_seconds=turn_seconds, notice=notice
        )
        if not waiting or reference.failure:
            return [reference, *others]


def _one_group(
    reference: Result,
    waiting: list[Result],
    setting_of: Callable[[Contestant], Setting],
    *,
    rounds: int,
    turn_seconds: float,
    notice: Callable[[str], None],
) -> list[Result]:
    """Starts the reference and as many others as fit, lets them race, and returns those that are left."""
    racing: list[tuple[Result, Racing]] = []
    waiting = list(waiting)
    free = psutil.virtual_memory().available * MEMORY_PART
    try:
        _start(reference, setting_of, racing, notice)
        largest = reference.start.get("peak_bytes", 0)
        while waiting and racing and (len(racing) == 1 or (len(racing) + 1) * largest <= free):
            result = waiting.pop(0)
            _start(result, setting_of, racing, notice)
            largest = max(largest, result.start.get("peak_bytes", 0))
        _race(racing, rounds, turn_seconds, notice)
    finally:
        for _, process in racing:
            process.stop()
    return waiting


def _start(
    result: Result,
    setting_of: Callable[[Contestant], Setting],
    racing: list[tuple[Result, Racing]],
    notice: Callable[[str], None],
) -> None:
    notice(f"starting {result.contestant.name}")
    process = Racing(result.contestant, setting_of(result.contestant))
    try:
        result.start = process.ready()
        racing.append((result, process))
    except BaseException as error:
        process.stop()
        if not isinstance(error, ContestantFailed):
            raise
        result.failure = str(error)
        notice(f"{result.contestant.name}: {error}")


def _race(
    racing: list[tuple[Result, Racing]], rounds: int, turn_seconds: float, notice: Callable[[str], None]
) -> None:
    for number in range(rounds):
        turns: dict[str, Turn] = {}
        first = number % max(1, len(racing))
        for result, process in racing[first:] + racing[:first]:
            if result.failure:
                continue
            steps = max(1, round(turn_seconds / max(result.start["step_seconds"], 1e-6)))
            try:
                turn = process.run(steps, result.start["images"])
            except ContestantFailed as error:
                result.failure = str(error)
                notice(f"{result.contestant.name}: {error}")
                continue
            result.turns.append(turn)
            turns[result.contestant.name] = turn
        base = turns.get(racing[0][0].contestant.name) if racing else None
        for result, _ in racing:
            turn_of = turns.get(result.contestant.name)
            if turn_of is not None and base is not None:
                result.ratios.append(turn_of.images_per_second / base.images_per_second)
        said = ", ".join(f"{name} {turn.images_per_second:.2f}" for name, turn in turns.items())
        notice(f"round {number + 1} of {rounds}, images/s: {said}")


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
