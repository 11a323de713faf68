"""From the command line's wishes and this machine to the ranks of a job."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from distxcept.cluster.tether import LAUNCHER_VARIABLE
from distxcept.errors import ConfigError
from distxcept.launch.hosts import (
    Host,
    deal,
    parse_hosts,
    read_hostfile,
    slurm_cores,
    slurm_hosts,
    slurm_shows_gpus,
    total_slots,
)
from distxcept.launch.mpi import Via, Wiring
from distxcept.launch.network import check_interface, is_local, loopback, network_towards
from distxcept.launch.ranks import MpiRanks, PlainRank, Program
from distxcept.launch.reach import lost_by_slurm, lost_by_ssh
from distxcept.launch.settings import passed_names, rank_environ, settings
from distxcept.launch.supervisor import Ranks

INSTALL_MPI = "apt-get install openmpi-bin libopenmpi-dev, or load your cluster's MPI module"

GLOO_WARNING = (
    "Gloo was asked for by name: its launcher opens a server on the network that executes what it is sent "
    "(CVE-2024-10190, CVE-2026-31234, not fixed); use it only where nobody else can reach this machine"
)


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the command line asks for."""

    ranks: int | None = None
    hosts: str | None = None
    hostfile: str | None = None
    via: str = "auto"
    min_ranks: int = 1
    interface: str | None = None
    timeline: str | None = None
    env: tuple[str, ...] = ()
    launcher_options: tuple[str, ...] = ()


def choose_ranks(wishes: Wishes, program: Program, environ: Mapping[str, str]) -> Ranks:
    """ConfigError says what is missing, before anything is started."""
    allocation = slurm_hosts(environ) if "SLURM_JOB_ID" in environ else []
    hosts = _hosts(wishes, allocation)
    number = wishes.ranks or (total_slots(hosts) if hosts else 1)
    if wishes.min_ranks > number:
        raise ConfigError(f"--min-np {wishes.min_ranks} is more than --np {number}")
    interface = check_interface(wishes.interface) if wishes.interface else None
    names = tuple(passed_names(environ, wishes.env))
    elsewhere = [host.name for host in hosts if not is_local(host.name)]
    if number == 1 and wishes.via == "auto" and not (elsewhere and not allocation):
        return PlainRank(program, rank_environ(environ, settings(wishes.timeline, interface)))
    via, launcher = _via(wishes.via, allocated=bool(allocation) and not (wishes.hosts or wishes.hostfile))
    dealt = deal(hosts or [Host("localhost", number)], number)
    remote = any(host.name in elsewhere for host in dealt)
    our_settings = settings(wishes.timeline, interface)
    wiring = Wiring(
        via=via,
        launcher=launcher,
        as_root=os.geteuid() == 0,
        remote=remote and not allocation,
        one_host=not remote,
        interface=interface or (None if remote else loopback()),
        network=network_towards(elsewhere) if remote and not interface else None,
        names=tuple(sorted({*names, *(setting.name for setting in our_settings), LAUNCHER_VARIABLE})),
        cpus_per_task=slurm_cores(environ),
        gpus=slurm_shows_gpus(environ),
        extra=wishes.launcher_options,
    )
    return MpiRanks(
        program=program,
        wiring=wiring,
        environment=rank_environ(environ, our_settings),
        hosts=tuple(hosts or dealt),
        ranks_wanted=number,
        min_ranks=wishes.min_ranks,
        find_lost=lost_by_slurm if allocation else lost_by_ssh,
    )


def _hosts(wishes: Wishes, allocation: list[Host]) -> list[Host]:
    if wishes.hosts is not None and wishes.hostfile is not None:
        raise ConfigError("--hosts and --hostfile exclude each other")
    if wishes.hosts is not None:
        return parse_hosts(wishes.hosts)
    if wishes.hostfile is not None:
        return read_hostfile(wishes.hostfile)
    return allocation


def _via(wanted: str, *, allocated: bool) -> tuple[Via, str | None]:
    """What starts the ranks, and its path where it is not on PATH: horovodrun is installed beside Python."""
    if wanted == "auto":
        wanted = "srun" if allocated and _srun_has_pmix() else "mpirun"
    program = "horovodrun" if wanted == "gloo" else wanted
    beside = Path(sys.executable).with_name(program)
    launcher = str(beside) if program == "horovodrun" and beside.exists() else None
    if launcher is None and shutil.which(program) is None:
        remedy = "launch/build_horovod.sh" if program == "horovodrun" else INSTALL_MPI
        raise ConfigError(f"{program} is not installed here; {remedy}")
    if wanted == "mpirun":
        return "mpich" if _is_hydra() else "mpirun", None
    if wanted == "srun" and not allocated:
        raise ConfigError("--via srun works inside of an allocation; see `distxcept submit`, or salloc first")
    return wanted, launcher  # type: ignore[return-value]  # argparse has checked it


def _srun_has_pmix() -> bool:
    return "pmix" in _output(["srun", "--mpi=list"])


def _is_hydra() -> bool:
    shown = _output(["mpirun", "--version"])
    return "HYDRA" in shown or "Intel(R) MPI" in shown


def _output(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
