"""How many processes the kernel has killed for memory in the group that this process and its children live in."""

import re
from pathlib import Path

_COUNTER = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_JOB_LEVELS = re.compile(r"slurm|job_|step_|task_")


def counter_files(
    cgroup_text: str, root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")
) -> list[Path]:
    """Files that hold the counter, by the text of /proc/self/cgroup; the whole machine's if there is no group.

    A SLURM job puts the batch script and every step into groups side by side, so those above within the job count too.
    """
    for line in cgroup_text.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers not in ("", "memory"):
            continue
        folder, name = (root, "memory.events") if not controllers else (root / "memory", "memory.oom_control")
        own = folder / path.strip("/")
        above = [
            parent for parent in own.parents if folder in parent.parents and _JOB_LEVELS.search(parent.name)
        ]
        found = [level / name for level in [own, *above] if (level / name).is_file()]
        if found:
            return found
    return [proc / "vmstat"]


def count_oom_kills(files: list[Path]) -> int:
    """0 where the kernel does not tell."""
    return max((_read(file) for file in files), default=0)


def own_counter_files() -> list[Path]:
    try:
        return counter_files(Path("/proc/self/cgroup").read_text())
    except OSError:
        return []


def _read(file: Path) -> int:
    try:
        found = _COUNTER.search(file.read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0
