"""What this machine has to spare: cores and memory, within the limits of a container or a SLURM job."""

import math
import os
from pathlib import Path

import psutil

from distxcept.config.size import parse_size, show_size
from distxcept.errors import DoesNotFitError

_CGROUP = Path("/sys/fs/cgroup")
_AUTO_SHARE = 8
"""`host_memory: auto` takes one part in so many of the free memory."""


def usable_cores(cgroup: Path = _CGROUP) -> int:
    bound = len(os.sched_getaffinity(0))
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return bound if quota == "max" else max(1, min(bound, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return bound


def free_memory(cgroup: Path = _CGROUP) -> int:
    """Bytes that can be taken before something is pushed out."""
    free = psutil.virtual_memory().available
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        # Pages of files count as used there, but are given back when needed.
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        used -= int(stat.get("file", 0)) - int(stat.get("shmem", 0))
    except (OSError, ValueError):
        return free
    return free if limit == "max" else max(0, min(free, int(limit) - used))


def input_bytes(host_memory: str, update_bytes: int, processes: int) -> int:
    """Memory for the images that a process reads ahead, with those of the update that is being computed."""
    if host_memory == "auto":
        return max(2 * update_bytes, free_memory() // (_AUTO_SHARE * processes))
    budget = parse_size(host_memory)
    if budget < 2 * update_bytes:
        raise DoesNotFitError(
            f"data.host_memory = {host_memory}, but an update of this process takes {show_size(update_bytes)} and two "
            f"must fit (one is read while one is computed): set at least {show_size(2 * update_bytes)}, or use "
            "smaller batch.global or more processes"
        )
    return budget
