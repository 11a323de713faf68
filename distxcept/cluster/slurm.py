"""What SLURM's variables say about this process.

A task that `srun` started belongs to a *step* and has SLURM_STEP_ID. The body of an `sbatch` script, and a shell
under `salloc`, have the variables of the allocation only: SLURM_NTASKS there says how many tasks `srun` *would*
start, and the script itself is one process.
"""

import re
from collections.abc import Mapping

from distxcept.cluster.placement import Placement, WireUp
from distxcept.cluster.variables import contradiction, whole_number

RANK, SIZE = "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"
NODE, LOCAL_RANK, TASKS_PER_NODE = "SLURM_NODEID", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"

_BRACKETS = re.compile(r"^([^\[\]]*)\[([^\[\]]*)\](.*)$")
_REPEATED = re.compile(r"^(\d+)(?:\(x(\d+)\))?$")


def step_placement(environ: Mapping[str, str]) -> Placement | None:
    """The placement by `srun`, or None outside a step."""
    if "SLURM_STEP_ID" not in environ:
        return None
    rank, size = whole_number(environ, RANK), whole_number(environ, SIZE)
    if rank is None or size is None:
        raise contradiction(environ, ["SLURM_STEP_ID", RANK, SIZE], "a task of a step has all three")
    if rank >= size:
        raise contradiction(environ, [RANK, SIZE], f"tasks are numbered from 0 to {size - 1}")
    local_rank, local_size = _local(environ, size)
    return Placement(
        launcher="srun",
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        host=environ.get("SLURMD_NODENAME"),
        hosts=expand_host_list(environ.get("SLURM_STEP_NODELIST", "")),
        wire_up=_wire_up(environ),
        bound=environ.get("SLURM_CPU_BIND_TYPE", "") not in ("", "none"),
    )


def batch_notice(environ: Mapping[str, str]) -> str | None:
    """For a process in an allocation but in no step: the tasks that were asked for and do not exist."""
    tasks = whole_number(environ, "SLURM_NTASKS") if "SLURM_JOB_ID" in environ else None
    if tasks is None or tasks < 2:
        return None
    return (
        f"SLURM job {environ['SLURM_JOB_ID']} has SLURM_NTASKS={tasks}, but this process was not started by srun: "
        f"it runs alone; put `srun --mpi=pmix` before the command to use all {tasks} tasks"
    )


def is_daemon_step(environ: Mapping[str, str]) -> bool:
    """Could this step be the one by which mpirun starts its daemons? They are one a node."""
    return SIZE in environ and environ.get(SIZE) == environ.get("SLURM_STEP_NUM_NODES")


def _local(environ: Mapping[str, str], size: int) -> tuple[int, int]:
    """(local rank, local size); SLURM gives the second as a list over the nodes."""
    local_rank, node = whole_number(environ, LOCAL_RANK), whole_number(environ, NODE)
    names = [LOCAL_RANK, NODE, TASKS_PER_NODE]
    tasks_per_node = expand_tasks_per_node(environ.get(TASKS_PER_NODE, ""))
    if local_rank is None or node is None or tasks_per_node is None:
        raise contradiction(environ, names, "they cannot be read as a task's place on its node")
    if sum(tasks_per_node) != size:
        raise contradiction(environ, [TASKS_PER_NODE, SIZE], f"the first adds up to {sum(tasks_per_node)}")
    if node >= len(tasks_per_node) or local_rank >= tasks_per_node[node]:
        raise contradiction(environ, names, "there is no such task on that node")
    return local_rank, tasks_per_node[node]


def _wire_up(environ: Mapping[str, str]) -> WireUp | None:
    """By what the step really has; `srun` without --mpi leaves nothing, unless the cluster has a default."""
    if environ.get("PMIX_NAMESPACE", "").startswith("slurm.pmix."):
        return "pmix"
    if "PMI_RANK" in environ:
        if (environ["PMI_RANK"], environ.get("PMI_SIZE")) != (environ.get(RANK), environ.get(SIZE)):
            raise contradiction(environ, ["PMI_RANK", "PMI_SIZE", RANK, SIZE], "MPI and SLURM disagree")
        return "pmi2"
    return None


def expand_tasks_per_node(text: str) -> list[int] | None:
    """`2(x3),1` → [2, 2, 2, 1]; None where it cannot be read."""
    counts: list[int] = []
    for part in text.split(","):
        match = _REPEATED.match(part)
        if match is None:
            return None
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def expand_host_list(text: str) -> tuple[str, ...]:
    """`node[1-2,07],login` → node1, node2, node07, login; what cannot be read stays as it is."""
    return tuple(host for part in _split_outside_brackets(text) for host in _expand_part(part))


def _split_outside_brackets(text: str) -> list[str]:
    return [part for part in re.split(r",(?![^\[]*\])", text) if part]


def _expand_part(part: str) -> list[str]:
    match = _BRACKETS.match(part)
    if match is None:
        return [part]
    head, ranges, tail = match.groups()
    numbers: list[str] = []
    for item in ranges.split(","):
        first, _, last = item.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            return [part]
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return [head + number + rest for number in numbers for rest in _expand_part(tail)]
