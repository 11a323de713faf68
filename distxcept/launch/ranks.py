"""The ranks of a job: what they run, how they are started, and which are left after a loss."""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from distxcept.errors import PeerLostError
from distxcept.launch.hosts import Host, deal, total_slots
from distxcept.launch.mpi import Wiring, launch_command
from distxcept.launch.supervisor import Ranks
from distxcept.launch.verdict import Ending

RESUME_AUTO = "run.resume=auto"

# horovodrun makes mpirun put the rank before every line.
_TAG = re.compile(rb"\[\d+,\d+\]<std(?:out|err)>:")
_DIED_ON = re.compile(
    r"process rank \d+ with PID \d+ on node (\S+) exited on signal|"
    r"srun: error: (\S+): task \d+: (?:Killed|Segmentation|Aborted)"
)


@dataclass(frozen=True, kw_only=True)
class Program:
    """What every rank runs."""

    run_folder: Path
    config: str
    overrides: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    container: str | None = None
    """An Apptainer image to run in; its own Python is used."""

    def arguments(self, *, resume_auto: bool) -> list[str]:
        """An argument list: no shell ever reads it. Absolute paths, so that none is taken for an option."""
        inside = (
            ["apptainer", "exec", "--nv", os.path.abspath(self.container), "python3"]
            if self.container
            else []
        )
        return [
            *(inside or [sys.executable]),
            "-m",
            "distxcept.cli.rank",
            os.path.abspath(self.run_folder),
            "--",
            "train",
            *self.options,
            os.path.abspath(self.config),
            *self.overrides,
            *([RESUME_AUTO] if resume_auto else []),
        ]


@dataclass(frozen=True)
class PlainRank:
    """One rank, without MPI."""

    program: Program
    environment: Mapping[str, str]
    size: int = 1

    def command(self, *, resume_auto: bool) -> list[str]:
        return self.program.arguments(resume_auto=resume_auto)

    def environ(self) -> Mapping[str, str]:
        return self.environment

    def clean(self, line: bytes) -> bytes:
        return line

    def after_loss(self, ending: Ending) -> tuple[Ranks, str]:
        return self, ""


@dataclass(frozen=True, kw_only=True)
class MpiRanks:
    """Several ranks through MPI, on the hosts that are there."""

    program: Program
    wiring: Wiring
    environment: Mapping[str, str]
    hosts: tuple[Host, ...]
    """All that may be used, with all their slots."""
    ranks_wanted: int
    min_ranks: int = 1
    find_lost: Callable[[Sequence[str]], set[str]] = field(default=lambda names: set(), compare=False)
    """Those of the named hosts that cannot be reached any more."""
    blamed: tuple[str, ...] = ()
    """Hosts on which a rank died in the attempt before."""

    @property
    def size(self) -> int:
        return min(self.ranks_wanted, total_slots(self.hosts))

    def command(self, *, resume_auto: bool) -> list[str]:
        arguments = self.program.arguments(resume_auto=resume_auto)
        return launch_command(self.wiring, deal(self.hosts, self.size), arguments)

    def environ(self) -> Mapping[str, str]:
        return self.environment

    def clean(self, line: bytes) -> bytes:
        return _TAG.sub(b"", line)

    def after_loss(self, ending: Ending) -> tuple[Ranks, str]:
        """Leaves out hosts that are gone; and one on which ranks die again and again, if enough others are there."""
        lost = self.find_lost([host.name for host in self.hosts])
        dead_on = set(hosts_of_dead_ranks(ending))
        left = [host for host in self.hosts if host.name not in lost]
        better = [host for host in left if host.name not in dead_on & set(self.blamed)]
        if better and total_slots(better) >= self.min_ranks:
            left = better
        if total_slots(left) < self.min_ranks:
            raise PeerLostError(
                f"{', '.join(sorted(lost))} cannot be reached; the hosts that are left have {total_slots(left)} slots, and "
                f"--min-np is {self.min_ranks}; start the same command again when they are back"
            )
        gone = sorted({host.name for host in self.hosts} - {host.name for host in left})
        ranks = replace(
            self,
            hosts=tuple(left),
            blamed=tuple(sorted(dead_on)),
            wiring=replace(self.wiring, pin_nodes=self.wiring.pin_nodes or bool(gone)),
        )
        return ranks, f"without {', '.join(gone)}, as {ranks.size} of {self.size} ranks" if gone else ""


def hosts_of_dead_ranks(ending: Ending) -> list[str]:
    """By what Open MPI and srun say of a rank that a signal ended."""
    text = (ending.log_tails or {}).get(0, "")
    return [found for match in _DIED_ON.findall(text) for found in match if found]
