"""Keeps a job going until it is done, or until going on makes no sense.

    until the verdict is done or over:
        start the ranks, hand their output on, wait for their end
        decide by exit code, status files, logs and the kernel's count of memory kills    (verdict.py)
        a rank was lost → the same again on the hosts that are left, after a pause
        too little memory → the same with the next smaller plan                           (memory_plan.py)

Every attempt goes on from the last snapshot, and gives the same weights on any number of ranks.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import psutil

from distxcept.cluster.status import RankStatus, read_statuses
from distxcept.cluster.tether import adopt_orphans, end_children, launcher_variables
from distxcept.errors import ConfigError, StopRequested
from distxcept.launch.child import GRACE_SECONDS, Child, StopRequests
from distxcept.launch.logs import log_path, log_sizes, log_tails
from distxcept.launch.oom_kills import count_oom_kills, own_counter_files
from distxcept.launch.verdict import PERMANENT, Chances, Ending, Verdict, decide
from distxcept.memory.memory_plan import (
    MemoryPlan,
    next_smaller,
    read_memory_plan,
    read_plan_in_use,
    write_memory_plan,
)

LONGEST_PAUSE_SECONDS = 60.0


class Ranks(Protocol):
    """How the ranks of an attempt are started, and where."""

    @property
    def size(self) -> int: ...

    def command(self, *, resume_auto: bool) -> list[str]:
        """`resume_auto`: go on from this run's newest snapshot, whatever the config says."""

    def environ(self) -> Mapping[str, str]: ...

    def clean(self, line: bytes) -> bytes:
        """A line of output as the rank wrote it."""

    def after_loss(self, ending: Ending) -> tuple["Ranks", str]:
        """The ranks for the next attempt, and what to tell of the change; PeerLostError if too few are left."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    max_restarts: int = 0
    first_pause_seconds: float = 1.0
    grace_seconds: float = GRACE_SECONDS
    remat_allowed: bool = True

    def pause_seconds(self, restart: int) -> float:
        """Doubles with every restart (counted from 0): what is broken for a moment gets time, no host is hammered."""
        return min(LONGEST_PAUSE_SECONDS, self.first_pause_seconds * 2**restart)


class Supervisor:
    def __init__(self, run_folder: Path, ranks: Ranks, policy: Policy, say: Callable[[str], None]):
        self.run_folder, self.ranks, self.policy, self.say = run_folder, ranks, policy, say
        self._began = time.time()
        self._restarts = 0
        self._attempts = 0
        self.stop_signal: int | None = None
        """What asked us to stop, if anything did."""
        self._unexplained_at: int | None = None
        """How far an attempt had come that ended by an unexplained death."""

    def run(self) -> int:
        """The exit code of the job."""
        adopt_orphans()
        with StopRequests() as requests:
            while True:
                ending = self._attempt(requests)
                smaller = None if ending.smaller_plan_left else self._smaller_plan()
                possible = ending.smaller_plan_left or smaller is not None
                verdict = decide(ending, self._chances(ending, possible))
                self._note(verdict, ending)
                if verdict.action in ("done", "over"):
                    return verdict.code
                if verdict.action == "shrink":
                    if smaller is not None:
                        write_memory_plan(self.run_folder, *smaller, verdict.reason)
                    self.say(f"{verdict.reason}; going on with {read_memory_plan(self.run_folder)}")
                    pause_seconds = self.policy.first_pause_seconds
                else:
                    pause_seconds = self._prepare_restart(verdict, ending)
                self._pause(pause_seconds, requests)
                if requests.count:
                    self.say("stopped on request while waiting to restart")
                    return StopRequested.exit_code

    def _attempt(self, requests: StopRequests) -> Ending:
        ranks = self.ranks
        kill_counters = own_counter_files()
        kills = count_oom_kills(kill_counters)
        statuses = read_statuses(self.run_folder)
        limit = read_memory_plan(self.run_folder)
        sizes = log_sizes(self.run_folder, range(ranks.size))
        child = Child(
            ranks.command(resume_auto=self._attempts > 0 and self.has_new_snapshot()),
            {**ranks.environ(), **launcher_variables()},
            log_path(self.run_folder, 0),
            (sys.stdout.buffer, sys.stderr.buffer),
            ranks.clean,
        )
        self._attempts += 1
        code = child.wait(requests, self.policy.grace_seconds)
        if requests.count:
            self._wait_for_saves(statuses, requests)
        end_children()
        return Ending(
            code=code,
            statuses=_written_since(statuses, read_statuses(self.run_folder), ranks.size),
            log_tails=log_tails(self.run_folder, sizes),
            oom_kills=count_oom_kills(kill_counters) - kills,
            stop_signal=requests.first,
            smaller_plan_left=read_memory_plan(self.run_folder) not in (limit, None),
        )

    def _wait_for_saves(self, before: Mapping[int, RankStatus], requests: StopRequests) -> None:
        """Where SLURM ends a job it ends srun at once, while the tasks still save; they end when we do."""
        self.stop_signal = requests.first
        deadline = time.monotonic() + self.policy.grace_seconds
        while time.monotonic() < deadline and requests.count < 2:
            found = _written_since(before, read_statuses(self.run_folder), self.ranks.size)
            if not any(_is_alive(status) for status in found if not status.ended):
                return
            time.sleep(0.1)

    def _chances(self, ending: Ending, smaller_plan: bool) -> Chances:
        return Chances(
            restarts_left=self.policy.max_restarts - self._restarts,
            may_restart=self.policy.max_restarts > 0,
            smaller_plan=smaller_plan,
            unexplained_before=self._unexplained_at is not None
            and self._reached(ending) <= self._unexplained_at,
        )

    def _smaller_plan(self) -> tuple[MemoryPlan, MemoryPlan] | None:
        """(next plan, the one that was in use). Ends even with a training that does not do as it was told."""
        now, limit = read_plan_in_use(self.run_folder), read_memory_plan(self.run_folder)
        if now is None:
            return None
        if limit is not None:
            plan = MemoryPlan(min(now.plan.micro, limit.micro), now.plan.remat or limit.remat)
            now = replace(now, plan=plan)
        smaller = next_smaller(now, remat_allowed=self.policy.remat_allowed, halve=True)
        return None if smaller is None else (smaller, now.plan)

    def _prepare_restart(self, verdict: Verdict, ending: Ending) -> float:
        self._unexplained_at = self._reached(ending) if verdict.unexplained else None
        self.ranks, change = self.ranks.after_loss(ending)
        pause_seconds = self.policy.pause_seconds(self._restarts)
        self._restarts += 1
        self.say(
            f"{verdict.reason}; restart {self._restarts} of at most {self.policy.max_restarts} in "
            f"{pause_seconds:g} s from the last snapshot{f', {change}' if change else ''}"
        )
        return pause_seconds

    def _pause(self, seconds: float, requests: StopRequests) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not requests.count:
            time.sleep(min(0.1, seconds))

    def _reached(self, ending: Ending) -> int:
        """The last update that is known of. What a rank said of itself before it died may be some updates old."""
        saved = [
            int(name) for folder in self._snapshots() if (name := folder.name[len("update-") :]).isdigit()
        ]
        return max([*saved, *(status.update for status in ending.statuses)], default=0)

    def _snapshots(self) -> Iterable[Path]:
        return (self.run_folder / "checkpoints").glob("update-*")

    def has_new_snapshot(self) -> bool:
        """Did this job write one? Else `run.resume` still means what it meant at the first attempt."""
        return any(folder.stat().st_mtime >= self._began for folder in self._snapshots())

    def _note(self, verdict: Verdict, ending: Ending) -> None:
        entry = {
            "kind": "supervisor",
            "time": time.time(),
            "message": verdict.reason,
            "action": verdict.action,
            "attempt": self._attempts,
            "exit_code": ending.code,
            "ranks": self.ranks.size,
        }
        with (self.run_folder / "events.jsonl").open("a", encoding="utf-8") as events:
            events.write(json.dumps(entry) + "\n")
        told_by_rank = verdict.code == ending.code and verdict.code in {*PERMANENT, StopRequested.exit_code}
        if verdict.action == "over" and verdict.code and not told_by_rank:
            self.say(verdict.reason)


def make_folders(run_folder: Path) -> None:
    """For the logs, before the first rank makes them; nobody else may write there, whatever the umask says."""
    try:
        run_folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        (run_folder / "logs").mkdir(exist_ok=True, mode=0o755)
    except OSError as error:
        raise ConfigError(f"run.dir: {run_folder} cannot be made: {error.strerror}") from error
    if not os.access(run_folder / "logs", os.W_OK):
        raise ConfigError(f"run.dir: {run_folder} cannot be written")


def _written_since(
    before: Mapping[int, RankStatus], after: Mapping[int, RankStatus], size: int
) -> tuple[RankStatus, ...]:
    """By comparison rather than by time: the clocks of other hosts may differ."""
    return tuple(
        status for rank, status in sorted(after.items()) if rank < size and before.get(rank) != status
    )


def _is_alive(status: RankStatus) -> bool:
    """As far as can be seen from here."""
    return status.host != socket.gethostname() or psutil.pid_exists(status.pid)
