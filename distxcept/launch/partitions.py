"""What a SLURM cluster offers, out of `sinfo`, and whether a job can ever run there. Pure but for `read_partitions`."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from distxcept.errors import ConfigError
from distxcept.launch.hosts import share_of_cpus

SINFO = ("sinfo", "--noheader", "--format=%R|%a|%D|%c|%G|%l")

_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of a partition that are alike."""

    partition: str
    up: bool
    nodes: int
    cpus: int
    gpus: int
    limit_minutes: float | None
    """None: no limit."""


@dataclass(frozen=True, kw_only=True)
class Request:
    nodes: int
    gpus_per_node: int
    cpus_per_node: int
    minutes: float
    partition: str | None = None


def parse_minutes(text: str) -> float | None:
    """SLURM's way to write a time: 90, 90:00, 1:30:00, 2-12, 2-12:30, 2-12:30:00; None if it is none."""
    found = _TIME.fullmatch(text)
    if found is None or len(text) > 20:
        return None
    days, first, second, third = (int(part) if part else 0 for part in found.groups())
    if found[1]:
        return days * 1440 + first * 60 + second + third / 60
    if found[4]:
        return first * 60 + second + third / 60
    return first + second / 60


def parse_sinfo(text: str) -> list[NodeGroup]:
    groups = []
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) != 6:
            continue
        name, availability, nodes, cpus, gres, limit = parts
        groups.append(
            NodeGroup(
                partition=name,
                up=availability == "up",
                nodes=_number(nodes),
                cpus=_number(cpus),
                gpus=sum(int(count) for count in _GPUS.findall(gres)),
                limit_minutes=parse_minutes(limit),
            )
        )
    return groups


def _number(text: str) -> int:
    """sinfo writes 64+ for groups that differ."""
    digits = re.match(r"\d+", text)
    return int(digits[0]) if digits else 0


def check_request(request: Request, groups: Sequence[NodeGroup]) -> None:
    """ConfigError with the reason if the queue would keep or refuse the job; an unknown default partition passes."""
    names = sorted({group.partition for group in groups})
    if request.partition is not None and request.partition not in names:
        raise ConfigError(
            f"there is no partition {request.partition}; there are {', '.join(names) or 'none'}"
        )
    wanted = [group for group in groups if request.partition in (None, group.partition)]
    if not any(group.up for group in wanted):
        raise ConfigError(f"partition {request.partition or 'of any name'} is not up; see `sinfo`")
    where = f"partition {request.partition}" if request.partition else "any partition"
    most_gpus, most_cpus = (
        max((getattr(group, kind) for group in wanted), default=0) for kind in ("gpus", "cpus")
    )
    if request.gpus_per_node > most_gpus:
        raise ConfigError(
            f"--gpus-per-node {request.gpus_per_node}, but no node of {where} has more than {most_gpus} GPUs; "
            "ask for fewer per node and for more nodes"
        )
    if request.cpus_per_node > most_cpus:
        raise ConfigError(
            f"{request.cpus_per_node} cores a node, but no node of {where} has more than {most_cpus}"
        )
    fitting = [
        group
        for group in wanted
        if group.gpus >= request.gpus_per_node and group.cpus >= request.cpus_per_node
    ]
    by_partition = {name: sum(group.nodes for group in fitting if group.partition == name) for name in names}
    if max(by_partition.values(), default=0) < request.nodes:
        raise ConfigError(
            f"--nodes {request.nodes}, but {where} has only {max(by_partition.values(), default=0)} nodes with "
            f"{request.gpus_per_node} GPUs and {request.cpus_per_node} cores"
        )
    if all(group.limit_minutes is not None and group.limit_minutes < request.minutes for group in fitting):
        longest = max(group.limit_minutes or 0 for group in fitting)
        raise ConfigError(
            f"--time is {request.minutes:g} minutes, but {where} allows {longest:g}; ask for less: the job saves before "
            "its time is up, requeues itself and goes on"
        )


def fair_cores(
    groups: Sequence[NodeGroup], *, partition: str | None, gpus_per_node: int, ranks_per_node: int
) -> int:
    """Cores of each rank that a node of this partition has for it: those of its part of the GPUs, or of the node."""
    fitting = [
        group
        for group in groups
        if partition in (None, group.partition) and group.up and group.gpus >= gpus_per_node
    ]
    shares = [group.cpus * gpus_per_node // group.gpus if gpus_per_node else group.cpus for group in fitting]
    return share_of_cpus(min(shares, default=1), ranks_per_node)


def read_partitions(timeout_seconds: float = 30.0) -> list[NodeGroup]:
    try:
        done = subprocess.run(
            SINFO, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_seconds
        )
    except FileNotFoundError:
        raise ConfigError(
            "there is no SLURM here (sinfo is missing); --dry-run shows the job without it"
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"sinfo did not answer in {timeout_seconds:g} s; is the controller up?") from None
    if done.returncode:
        raise ConfigError(f"sinfo failed: {' '.join(done.stderr.split())[:300]}")
    return parse_sinfo(done.stdout)
