"""Hosts and their slots: read from the command line, a file or SLURM, and dealt to ranks. Pure.

Names end up on the command lines of mpirun and ssh, so only what a host name can hold is accepted: nothing that
starts like an option, no shell characters, no second line.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from distxcept.cluster.slurm import expand_host_list, expand_tasks_per_node
from distxcept.errors import ConfigError

MAX_SLOTS = 4096
MAX_FILE_BYTES = 1 << 20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_FILE_LINE = re.compile(r"(\S+?)(?::(\d+))?(?:\s+slots\s*=\s*(\d+))?(?:\s+max[_-]slots\s*=\s*\d+)?")


@dataclass(frozen=True)
class Host:
    name: str
    slots: int
    """Ranks that it can take: its GPUs."""

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


def parse_hosts(text: str) -> list[Host]:
    """`h1:2,h2:2`; without a number a host has one slot."""
    return _together(_host(*_split(part), where="--hosts") for part in text.split(","))


def read_hostfile(path: str) -> list[Host]:
    """A line a host: `h1 slots=2`, `h1:2` or `h1`; `#` begins a comment."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--hostfile: {path!r} cannot be read: {error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"--hostfile: {path!r} is larger than 1 MiB: this is no list of hosts")
    hosts = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        found = _FILE_LINE.fullmatch(line)
        where = f"{path}:{number}"
        if found is None:
            raise ConfigError(f"{where}: {line[:80]!r} is no host; write `name slots=2`")
        hosts.append(_host(found[1], found[3] or found[2] or "1", where=where))
    if not hosts:
        raise ConfigError(f"--hostfile: {path!r} names no host")
    return _together(hosts)


def slurm_hosts(environ: Mapping[str, str]) -> list[Host]:
    """The nodes of this allocation with their tasks; empty outside of one."""
    names = expand_host_list(environ.get("SLURM_JOB_NODELIST", ""))
    slots = expand_tasks_per_node(environ.get("SLURM_TASKS_PER_NODE", "")) or []
    if not names or len(names) != len(slots):
        return []
    return [Host(name, count) for name, count in zip(names, slots, strict=True)]


def slurm_cores(environ: Mapping[str, str]) -> int | None:
    """Cores of each rank by srun: as asked for, else a rank's part of what the allocation has on its nodes.

    None outside of an allocation, and with --cpus-per-gpu, which srun takes over by itself.
    """
    if "SLURM_CPUS_PER_GPU" in environ:
        return None
    asked = environ.get("SLURM_CPUS_PER_TASK", "")
    if asked.isdecimal():
        return int(asked)
    cores = expand_tasks_per_node(environ.get("SLURM_JOB_CPUS_PER_NODE", "")) or []
    tasks = expand_tasks_per_node(environ.get("SLURM_TASKS_PER_NODE", "")) or []
    if not cores or len(cores) != len(tasks):
        return None
    return min(share_of_cpus(on_node, ranks) for on_node, ranks in zip(cores, tasks, strict=True))


def share_of_cpus(cpus: int, ranks: int) -> int:
    """Of each rank, at least one. An even number: a core is often two CPUs, and SLURM gives whole cores to a rank."""
    share = cpus // max(1, ranks)
    return share - share % 2 if share > 1 else 1


def slurm_shows_gpus(environ: Mapping[str, str]) -> bool:
    """Whether the job has GPUs that nobody has bound to tasks by choice."""
    return "SLURM_GPUS_ON_NODE" in environ and "SLURM_GPU_BIND" not in environ


def total_slots(hosts: Sequence[Host]) -> int:
    return sum(host.slots for host in hosts)


def deal(hosts: Sequence[Host], ranks: int) -> list[Host]:
    """The hosts with as many slots as they get ranks, filled in order; ConfigError if there are too few."""
    if total_slots(hosts) < ranks:
        listed = ", ".join(map(str, hosts))
        raise ConfigError(
            f"--np {ranks}, but the hosts have {total_slots(hosts)} slots ({listed}); a slot is a GPU: raise the numbers "
            "or name more hosts"
        )
    dealt, left = [], ranks
    for host in hosts:
        if left:
            dealt.append(replace(host, slots=min(host.slots, left)))
            left -= dealt[-1].slots
    return dealt


def _split(part: str) -> tuple[str, str]:
    name, colon, slots = part.partition(":")
    return name, slots if colon else "1"


def _host(name: str, slots: str, *, where: str) -> Host:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: {name[:80]!r} is no host name; letters, digits, '.', '-' and '_' only")
    if not (slots.isascii() and slots.isdecimal() and 1 <= int(slots) <= MAX_SLOTS):
        raise ConfigError(f"{where}: {slots[:20]!r} slots for {name}; give a number from 1 to {MAX_SLOTS}")
    return Host(name, int(slots))


def _together(hosts: Iterable[Host]) -> list[Host]:
    """A host that is named twice has the slots of both."""
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
    return [Host(name, count) for name, count in slots.items()]
