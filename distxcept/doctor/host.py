"""The machine: memory and its limits, swap, shared memory, disk, open files, cores."""

import os
import resource
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from distxcept.doctor.finding import Finding, Status, gib

AREA = "host"
GIB = 2**30

# cgroup v1 writes "no limit" as the largest multiple of a page.
_NO_LIMIT_BYTES = 2**60


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    open_files_limit: int
    open_files_hard_limit: int
    disk_path: str
    disk_free_bytes: int
    shared_memory_bytes: int | None
    swap_total_bytes: int
    swap_used_bytes: int
    memory_total_bytes: int
    memory_available_bytes: int
    cgroup_memory_limit_bytes: int | None
    cores: int
    usable_cores: int


def read_host(folder: Path = Path(), cgroup_root: Path = Path("/sys/fs/cgroup")) -> HostFacts:
    import psutil

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    shared = Path("/dev/shm")
    return HostFacts(
        open_files_limit=soft,
        open_files_hard_limit=hard,
        disk_path=str(folder.absolute()),
        disk_free_bytes=shutil.disk_usage(folder).free,
        shared_memory_bytes=shutil.disk_usage(shared).total if shared.is_dir() else None,
        swap_total_bytes=swap.total,
        swap_used_bytes=swap.used,
        memory_total_bytes=memory.total,
        memory_available_bytes=memory.available,
        cgroup_memory_limit_bytes=read_cgroup_limit(Path("/proc/self/cgroup"), cgroup_root),
        cores=os.cpu_count() or 1,
        usable_cores=len(os.sched_getaffinity(0)),
    )


def read_cgroup_limit(membership: Path, root: Path) -> int | None:
    """The tightest memory limit on this process: of its group or of any group around it (v2, else v1)."""
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return None
    limits = []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers not in ("", "memory"):
            continue
        base, file = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        group = base / path.strip("/")
        for folder in (group, *group.parents):
            limits.append(_read_number(folder / file))
            if folder == base:
                break
    return min((limit for limit in limits if limit is not None and limit < _NO_LIMIT_BYTES), default=None)


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def check_host(facts: HostFacts) -> list[Finding]:
    return [
        _memory(facts),
        _swap(facts),
        _shared_memory(facts),
        _disk(facts),
        _open_files(facts),
        _cores(facts),
    ]


def _finding(status: Status, text: str, remedy: str, **data: object) -> Finding:
    return Finding(AREA, status, text, None if status == "ok" else remedy, data)


def _memory(facts: HostFacts) -> Finding:
    limit = facts.cgroup_memory_limit_bytes
    usable = min(facts.memory_available_bytes, limit or facts.memory_available_bytes)
    text = f"{gib(facts.memory_available_bytes)} of {gib(facts.memory_total_bytes)} memory available"
    if limit is not None and limit < facts.memory_total_bytes:
        text += f", limited to {gib(limit)} by a cgroup (container or SLURM)"
    status: Status = "ok" if usable >= 4 * GIB else "warning" if usable >= GIB else "problem"
    remedy = "end other programs, or ask for more memory (`docker run -m`, `sbatch --mem`)"
    return _finding(
        status, text, remedy, available_bytes=facts.memory_available_bytes, cgroup_limit_bytes=limit
    )


def _swap(facts: HostFacts) -> Finding:
    total, used = facts.swap_total_bytes, facts.swap_used_bytes
    text = f"{gib(used)} of {gib(total)} swap in use" if total else "no swap"
    busy = used > GIB and used > total / 2
    remedy = "the machine is short of memory and will be slow: end other programs"
    return _finding("warning" if busy else "ok", text, remedy, total_bytes=total, used_bytes=used)


def _shared_memory(facts: HostFacts) -> Finding:
    """Ranks on one host talk through /dev/shm; Docker gives a container 64 MB of it."""
    size = facts.shared_memory_bytes
    remedy = "start the container with --shm-size=1g (or --ipc=host): several ranks on one host need it"
    if size is None:
        return _finding("warning", "there is no /dev/shm", remedy)
    text = f"/dev/shm has {gib(size)}"
    return _finding("ok" if size >= GIB // 4 else "warning", text, remedy, bytes=size)


def _disk(facts: HostFacts) -> Finding:
    free = facts.disk_free_bytes
    status: Status = "ok" if free >= 10 * GIB else "warning" if free >= GIB else "problem"
    remedy = "free some, or put `run.dir` on another disk: checkpoints and logs go there"
    return _finding(status, f"{gib(free)} free on the disk of {facts.disk_path}", remedy, free_bytes=free)


def _open_files(facts: HostFacts) -> Finding:
    limit, hard = facts.open_files_limit, facts.open_files_hard_limit
    if limit < 0:  # resource.RLIM_INFINITY
        return _finding("ok", "any number of open files", "", limit=None)
    remedy = f"ulimit -n {65536 if hard < 0 or hard >= 65536 else hard}"
    return _finding("ok" if limit >= 1024 else "warning", f"up to {limit} open files", remedy, limit=limit)


def _cores(facts: HostFacts) -> Finding:
    text = f"{facts.usable_cores} of {facts.cores} cores usable by this process"
    bound_to_one = facts.usable_cores == 1 < facts.cores
    remedy = "a launcher bound this process to one core: `mpirun --bind-to none`, `srun --cpus-per-task=N`"
    return _finding("warning" if bound_to_one else "ok", text, remedy, usable=facts.usable_cores)


def check_threads(environ: Mapping[str, str], usable_cores: int) -> list[Finding]:
    text = environ.get("TF_NUM_INTRAOP_THREADS", "")
    if not text.isdecimal() or not 0 < int(text) < usable_cores:
        return []
    remedy = "unset it, unless several ranks share these cores"
    what = f"TF_NUM_INTRAOP_THREADS={text} lets TensorFlow use {text} of {usable_cores} cores"
    return [Finding(AREA, "warning", what, remedy)]
