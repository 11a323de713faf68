"""What each rank of a job says of itself, in files that the others and a supervisor read.

    RUN/status/rank-K.json   replaced whole, several times a minute while the rank lives

Exit codes cannot tell why a job ended: a launcher kills the survivors within seconds and returns a code of its own.
Names and fields are public. Imports no TensorFlow.
"""

import json
import os
import re
import socket
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

State = Literal["starting", "running", "failed", "stopped", "done"]
STATES = ("starting", "running", "failed", "stopped", "done")
ENDED = ("failed", "stopped", "done")

PEER_LOST = "PeerLostError"
"""The kind of an error that another rank has caused: never the root of the trouble."""

_NAME = re.compile(r"^rank-(\d{1,9})\.json$")


@dataclass(frozen=True, kw_only=True)
class RankStatus:
    rank: int
    host: str
    pid: int
    state: State
    update: int = 0
    """Updates of the run that are done."""
    time: float
    """When it was written, by the writer's clock, seconds since 1970; of a failure the moment it was noticed."""
    exit_code: int | None = None
    kind: str | None = None
    """Class of the error, with `failed`."""
    message: str | None = None
    lost: int | None = None
    """With PeerLostError the rank that was lost, where it is known."""
    ranks: int = 1
    """Ranks of its job; files of ranks beyond it are left over from a larger job."""

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"


def own_status(rank: int, ranks: int) -> RankStatus:
    """The first status of this process."""
    return RankStatus(
        rank=rank, ranks=ranks, host=socket.gethostname(), pid=os.getpid(), state="starting", time=time.time()
    )


def failed(status: RankStatus, error: BaseException, exit_code: int) -> RankStatus:
    """`status` after `error`; the first line of its message is kept."""
    text = str(error).strip() or type(error).__name__
    message = text.splitlines()[0][:2000]
    return replace(
        status,
        state="failed",
        exit_code=exit_code,
        kind=type(error).__name__,
        message=message,
        time=time.time(),
    )


def status_path(run_folder: Path, rank: int) -> Path:
    return run_folder / "status" / f"rank-{rank}.json"


def write_status(run_folder: Path, status: RankStatus) -> None:
    """Replaces the rank's file: a reader sees the old or the new one, never a half. OSError where it cannot."""
    path = status_path(run_folder, status.rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{status.pid}.writing")
    scratch.write_text(json.dumps(asdict(status)) + "\n", encoding="utf-8")
    scratch.replace(path)


def read_status(run_folder: Path, rank: int) -> RankStatus | None:
    """None where there is no such file, or none that can be read."""
    try:
        return _parse(json.loads(status_path(run_folder, rank).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_statuses(run_folder: Path) -> dict[int, RankStatus]:
    """Of every rank that has one, by rank."""
    try:
        names = os.listdir(run_folder / "status")
    except OSError:
        return {}
    ranks = sorted(int(match[1]) for name in names if (match := _NAME.match(name)))
    found = ((rank, read_status(run_folder, rank)) for rank in ranks)
    return {rank: status for rank, status in found if status is not None}


def forget_statuses(run_folder: Path, ranks: int) -> None:
    """Removes what ranks from `ranks` on left behind: an earlier, larger job of this run."""
    for rank in read_statuses(run_folder):
        if rank >= ranks:
            status_path(run_folder, rank).unlink(missing_ok=True)


def root_cause(statuses: Iterable[RankStatus]) -> RankStatus | None:
    """The failure that came first; what ranks tell of lost peers counts only where nothing else is known."""
    failures = [status for status in statuses if status.state == "failed"]
    return min(failures, key=lambda status: (status.kind == PEER_LOST, status.time), default=None)


def _parse(fields: dict[str, Any]) -> RankStatus:
    known = {name: fields[name] for name in RankStatus.__dataclass_fields__ if name in fields}
    status = RankStatus(**known)
    if status.state not in STATES or not all(isinstance(n, int) for n in (status.rank, status.pid)):
        raise ValueError(f"state {status.state!r}")
    return status
