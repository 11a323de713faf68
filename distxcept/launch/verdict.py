"""What the end of an attempt means: done, over, try again, or try again with less memory. Pure.

    asked to stop                                → over: 75 if the ranks saved, else killed by that signal
    exit 0                                       → done
    a rank names a config, data or numeric error → over: it would happen again
    exit 4 (no plan fits), exit 75 (stopped)     → over, passed through
    signs of too little memory                   → again with the smaller plan; over with 4 if there is none
    a rank or node was lost (signal, exit 6)     → again from the last snapshot
    anything else                                → over

Causes are read from the ranks' status files and logs first: a launcher kills the survivors of a lost rank and returns
a code of its own. A death that explains itself in no way may be one for memory that nobody recorded (another host's
kernel did it); when it comes again without progress in between, the smaller plan is tried, which costs speed only.
"""

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from distxcept.cluster.status import PEER_LOST, RankStatus, root_cause
from distxcept.errors import (
    ConfigError,
    DataError,
    DivergedError,
    DoesNotFitError,
    PeerLostError,
    StopRequested,
)
from distxcept.memory.last_words import OUT_OF_MEMORY

Action = Literal["done", "over", "restart", "shrink"]

PERMANENT = {error.exit_code for error in (ConfigError, DataError, DivergedError, DoesNotFitError)}
"""Exit codes that a restart would only repeat."""

POLITE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Deaths by these were somebody's wish, not an accident."""

_MPICH_SIGNAL = re.compile(r"APPLICATION TERMINATED WITH THE EXIT STRING: .*\(signal (\d+)\)")
LOST_PEER = re.compile(
    r"HorovodInternalError|Horovod has been shut down|lost communication with a remote daemon|"
    r"unable to reliably start one or more daemons|NODE FAILURE|Node failure on|ncclRemoteError|ncclSystemError",
)


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Everything that is known about the end of an attempt."""

    code: int
    """Of the process that we started: its exit code, or minus the signal that ended it."""
    statuses: tuple[RankStatus, ...] = ()
    """Written during this attempt."""
    log_tails: Mapping[int, str] | None = None
    """By rank; the last lines of this attempt."""
    oom_kills: int = 0
    """By the kernel in our memory group, during this attempt."""
    stop_signal: int | None = None
    """The signal that asked us to stop, if one did."""
    smaller_plan_left: bool = False
    """The training itself told the next process, during this attempt, to take a smaller memory plan."""


@dataclass(frozen=True, kw_only=True)
class Chances:
    """What is left to try."""

    restarts_left: int = 0
    """For lost ranks. Smaller plans are not counted: there are only so many of them."""
    may_restart: bool = False
    """Restarts were asked for at all."""
    smaller_plan: bool = False
    """A plan that needs less memory exists."""
    unexplained_before: bool = False
    """The attempt before ended by an unexplained death too, and no update was done since."""


@dataclass(frozen=True)
class Verdict:
    action: Action
    code: int
    """The launcher's exit code if it ends here."""
    reason: str
    unexplained: bool = False


def decide(ending: Ending, chances: Chances) -> Verdict:
    if ending.stop_signal is not None:
        return _stopped(ending, ending.stop_signal)
    if ending.code == 0:
        return Verdict("done", 0, "done")
    cause = root_cause(ending.statuses)
    code = _telling_code(ending, cause)
    why = cause.message if cause is not None and cause.message else f"ended with exit code {code}"
    if code in PERMANENT:
        return Verdict("over", code, f"a restart would not help: {why}")
    if code == StopRequested.exit_code:
        return Verdict("over", code, "stopped on request, everything is saved")
    died_by = _signal_of(ending.code) or _signal_told_by_mpich(ending)
    if died_by in POLITE:
        return Verdict("over", 128 + died_by, f"ended from outside by {_signal_name(died_by)}")
    evidence = _memory_evidence(ending, died_by)
    if evidence:
        return _too_large(evidence, chances)
    if died_by is None and code != PeerLostError.exit_code and not _peer_lost(ending, cause):
        return Verdict("over", code, why)
    return _lost(ending, died_by, why, chances)


def _stopped(ending: Ending, stop_signal: int) -> Verdict:
    states = {status.state for status in ending.statuses}
    code = ending.code
    if "stopped" in states and states <= {"stopped", "done"}:  # srun ends with 0 when SLURM ends the job
        code = StopRequested.exit_code
    if code == StopRequested.exit_code or (code == 0 and states <= {"done"}):
        return Verdict("over", code, "stopped on request, everything is saved")
    died_by = _signal_of(code)
    if died_by == signal.SIGUSR1:
        # The request came before anybody could listen to it, so nothing was under way.
        return Verdict("over", StopRequested.exit_code, "stopped on request before the first update")
    if died_by is not None or code == 0:
        return Verdict("over", 128 + stop_signal, "ended without a save; the last snapshot is intact")
    return Verdict("over", code, f"ended with exit code {code} while stopping")


def _telling_code(ending: Ending, cause: RankStatus | None) -> int:
    """The exit code of whoever failed first, where that is known; else the launcher's."""
    if cause is not None and cause.exit_code:
        return cause.exit_code
    states = {status.state for status in ending.statuses}
    if states == {"stopped"}:  # a launcher may have reported the last one's death instead
        return StopRequested.exit_code
    return ending.code


def _memory_evidence(ending: Ending, died_by: int | None) -> str | None:
    if ending.oom_kills and (died_by is not None or ending.code == PeerLostError.exit_code):
        return "the kernel killed a rank for its memory"
    if ending.smaller_plan_left:
        return "the training ran out of memory and left a smaller plan"
    for rank, tail in sorted((ending.log_tails or {}).items()):
        found = OUT_OF_MEMORY.search(tail)
        if found:
            return f"rank {rank} ended after {found[0]!r} in its log"
    return None


def _too_large(evidence: str, chances: Chances) -> Verdict:
    code = DoesNotFitError.exit_code
    if not chances.smaller_plan:
        return Verdict("over", code, f"{evidence}, and there is no smaller memory plan")
    if not chances.may_restart:
        return Verdict("over", code, f"{evidence}; with --max-restarts a smaller plan would be tried")
    return Verdict("shrink", code, evidence)


def _peer_lost(ending: Ending, cause: RankStatus | None) -> bool:
    if cause is not None and cause.kind in (PEER_LOST, "HorovodInternalError"):
        return True
    return any(LOST_PEER.search(tail) for tail in (ending.log_tails or {}).values())


def _lost(ending: Ending, died_by: int | None, why: str, chances: Chances) -> Verdict:
    unexplained = died_by is not None
    reason = f"a rank was lost: {_signal_name(died_by) if died_by is not None else why}"
    code = PeerLostError.exit_code if len(ending.statuses) > 1 or died_by is None else 128 + died_by
    if chances.restarts_left <= 0:
        return Verdict("over", code, f"{reason}; no restart is left", unexplained)
    if unexplained and chances.unexplained_before and chances.smaller_plan:
        return Verdict("shrink", code, f"{reason}, twice without progress: perhaps for memory", True)
    return Verdict("restart", code, reason, unexplained)


def _signal_of(code: int) -> int | None:
    """The signal behind a code; launchers and shells say 128 + signal."""
    if code < 0:
        return -code
    return code - 128 if 128 < code <= 128 + 64 else None


def _signal_told_by_mpich(ending: Ending) -> int | None:
    """MPICH's mpirun returns the bare number of the signal, which looks like an exit code."""
    found = _MPICH_SIGNAL.search((ending.log_tails or {}).get(0, ""))
    return ending.code if found and int(found[1]) == ending.code else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
