"""Cluster detection against environments that real launchers made (environments/*.json), and against broken ones.

The recordings are made by tests/integration/record_environments.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from distxcept.cluster import Placement, detect
from distxcept.errors import ConfigError

ENVIRONMENTS = Path(__file__).parent / "environments"


def recorded(name: str) -> list[dict[str, str]]:
    return json.loads((ENVIRONMENTS / f"{name}.json").read_text())["tasks"]


def place(*numbers: int, **more: Any) -> Placement:
    rank, size, local_rank, local_size = numbers
    return Placement(rank=rank, size=size, local_rank=local_rank, local_size=local_size, **more)


def mpirun(*numbers: int) -> Placement:
    return place(*numbers, launcher="mpirun", wire_up="pmix", host="node1")


def hydra(*numbers: int) -> Placement:
    return place(*numbers, launcher="hydra", wire_up="pmi", host="node1")


def srun(
    *numbers: int, host: str, hosts: tuple[str, ...] = ("node1", "node2"), wire_up: str | None
) -> Placement:
    return place(*numbers, launcher="srun", wire_up=wire_up, host=host, hosts=hosts)


# In the SLURM recordings both nodes are one real host, so mpirun calls each of them by that host's name.
EXPECTED = {
    "openmpi": [mpirun(0, 2, 0, 2), mpirun(1, 2, 1, 2)],
    "mpich": [hydra(0, 2, 0, 2), hydra(1, 2, 1, 2)],
    "horovodrun_mpi": [mpirun(0, 2, 0, 2), mpirun(1, 2, 1, 2)],  # it turns itself into mpirun
    "horovodrun_gloo": [
        place(0, 2, 0, 2, launcher="horovodrun", wire_up="gloo", host="localhost"),
        place(1, 2, 1, 2, launcher="horovodrun", wire_up="gloo", host="localhost"),
    ],
    "srun_pmix": [
        srun(0, 3, 0, 2, host="node1", wire_up="pmix"),
        srun(1, 3, 1, 2, host="node1", wire_up="pmix"),
        srun(2, 3, 0, 1, host="node2", wire_up="pmix"),
    ],
    "srun_pmi2": [
        srun(0, 2, 0, 1, host="node1", wire_up="pmi2"),
        srun(1, 2, 0, 1, host="node2", wire_up="pmi2"),
    ],
    "srun_without_mpi": [
        srun(0, 2, 0, 1, host="node1", wire_up=None),
        srun(1, 2, 0, 1, host="node2", wire_up=None),
    ],
    "srun_one_task": [srun(0, 1, 0, 1, host="node1", hosts=("node1",), wire_up="pmix")],
    "salloc_openmpi": [mpirun(0, 4, 0, 2), mpirun(1, 4, 1, 2), mpirun(2, 4, 0, 2), mpirun(3, 4, 1, 2)],
    "sbatch_openmpi": [mpirun(0, 2, 0, 1), mpirun(1, 2, 0, 1)],
    "sbatch_one_node_openmpi": [mpirun(0, 2, 0, 2), mpirun(1, 2, 1, 2)],
    "sbatch_srun_pmix": [
        srun(0, 2, 0, 1, host="node1", wire_up="pmix"),
        srun(1, 2, 0, 1, host="node2", wire_up="pmix"),
    ],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_real_launchers(name: str) -> None:
    found = sorted((detect(task) for task in recorded(name)), key=lambda placement: placement.rank)
    assert found == EXPECTED[name]
    assert all(placement.is_distributed == (len(found) > 1) for placement in found)


def test_mpich_in_an_allocation_is_not_mistaken_for_its_proxies() -> None:
    found = sorted((detect(task) for task in recorded("salloc_mpich")), key=lambda placement: placement.rank)
    assert [(p.launcher, p.rank, p.size, p.local_size) for p in found] == [
        ("hydra", r, 4, 2) for r in range(4)
    ]


@pytest.mark.parametrize("name", ["salloc_shell", "sbatch_script"])
def test_a_process_outside_srun_runs_alone_and_is_told_so(name: str) -> None:
    (task,) = recorded(name)
    found = detect(task)
    assert (found.launcher, found.size, found.is_distributed) == ("local", 1, False)
    assert found.notice is not None
    assert "SLURM_NTASKS=2" in found.notice and "srun --mpi=pmix" in found.notice


def test_nothing_is_local_without_notice() -> None:
    assert detect({}) == Placement(launcher="local")
    assert detect({"PATH": "/bin", "SLURM_CONF": "/etc/slurm/slurm.conf"}) == Placement(launcher="local")
    assert detect({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}) == Placement(
        launcher="local"
    )


def test_an_mpirun_in_each_task_of_a_step_is_refused() -> None:
    """`srun -n2 mpirun -np 3` makes two jobs of three ranks that would write over each other."""
    for task in recorded("srun_each_task_openmpi"):
        with pytest.raises(ConfigError, match=r"SLURM_STEP_NUM_TASKS=2.*mpirun and srun disagree"):
            detect(task)


def test_the_same_with_one_task_a_node_is_refused_too() -> None:
    """Then the step has the shape of mpirun's daemons, but the ranks are children of mpirun itself."""
    for task in recorded("srun_each_task_openmpi"):
        spread = {
            "SLURM_STEP_NUM_NODES": "2",
            "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
            "SLURM_NODEID": task["SLURM_PROCID"],
            "SLURM_LOCALID": "0",
        }
        with pytest.raises(ConfigError, match="several separate jobs"):
            detect({**task, **spread})


OPEN_MPI = recorded("openmpi")[0]
HYDRA = recorded("mpich")[0]
SRUN = recorded("srun_pmix")[0]
PMI2 = recorded("srun_pmi2")[0]


def changed(task: dict[str, str], **changes: str | None) -> dict[str, str]:
    merged = {**task, **changes}
    return {name: value for name, value in merged.items() if value is not None}


BROKEN = {
    "rank beyond size": (
        changed(OPEN_MPI, OMPI_COMM_WORLD_RANK="5", OMPI_COMM_WORLD_SIZE="4"),
        ["OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=4", "ranks go from 0 to 3"],
    ),
    "rank without size": (
        changed(OPEN_MPI, OMPI_COMM_WORLD_SIZE=None),
        ["OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE not set"],
    ),
    "size without rank": (changed(HYDRA, PMI_RANK=None), ["PMI_RANK not set", "PMI_SIZE=2"]),
    "not a number": (changed(HYDRA, PMI_SIZE="two"), ["PMI_SIZE=two", "whole number"]),
    "negative": (changed(OPEN_MPI, OMPI_COMM_WORLD_RANK="-1"), ["OMPI_COMM_WORLD_RANK=-1", "whole number"]),
    "empty": (changed(OPEN_MPI, OMPI_COMM_WORLD_SIZE=""), ["OMPI_COMM_WORLD_SIZE=", "whole number"]),
    "other digits": (changed(OPEN_MPI, OMPI_COMM_WORLD_SIZE="²"), ["OMPI_COMM_WORLD_SIZE=²", "whole number"]),
    "no tasks": (
        changed(OPEN_MPI, OMPI_COMM_WORLD_SIZE="0"),
        ["OMPI_COMM_WORLD_SIZE=0", "at least one task"],
    ),
    "local rank beyond local size": (
        changed(OPEN_MPI, OMPI_COMM_WORLD_LOCAL_RANK="2"),
        ["OMPI_COMM_WORLD_LOCAL_RANK=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2"],
    ),
    "more on the host than in the job": (
        changed(OPEN_MPI, OMPI_COMM_WORLD_LOCAL_SIZE="3"),
        ["OMPI_COMM_WORLD_LOCAL_SIZE=3", "OMPI_COMM_WORLD_SIZE=2"],
    ),
    "local rank unknown": (changed(HYDRA, MPI_LOCALRANKID=None), ["MPI_LOCALRANKID not set"]),
    "SLURM and Open MPI disagree": (
        changed({**recorded("srun_without_mpi")[0], **OPEN_MPI}, OMPI_COMM_WORLD_SIZE="3"),
        ["SLURM_STEP_NUM_TASKS=2", "OMPI_COMM_WORLD_SIZE=3", "disagree"],
    ),
    "SLURM's own PMI disagrees": (
        changed(PMI2, PMI_SIZE="3"),
        ["PMI_SIZE=3", "SLURM_STEP_NUM_TASKS=2", "disagree"],
    ),
    "step without a rank": (changed(SRUN, SLURM_PROCID=None), ["SLURM_STEP_ID=0", "SLURM_PROCID not set"]),
    "SLURM rank beyond size": (changed(SRUN, SLURM_PROCID="3"), ["SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=3"]),
    "SLURM nodes do not add up": (
        changed(SRUN, SLURM_STEP_TASKS_PER_NODE="2(x2)"),
        ["SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_STEP_NUM_TASKS=3", "adds up to 4"],
    ),
    "SLURM nodes unreadable": (
        changed(SRUN, SLURM_STEP_TASKS_PER_NODE="2x"),
        ["SLURM_STEP_TASKS_PER_NODE=2x"],
    ),
    "no such node": (changed(SRUN, SLURM_NODEID="2"), ["SLURM_NODEID=2", "no such task"]),
    "Gloo rank without size": ({"HOROVOD_RANK": "0"}, ["HOROVOD_RANK=0", "HOROVOD_SIZE not set"]),
    "two kinds of MPI": (
        changed({**OPEN_MPI, **HYDRA}, PMI_RANK="1", MPI_LOCALRANKID="1"),
        ["PMI_RANK=1", "OMPI_COMM_WORLD_RANK=0", "disagree"],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_contradictions_name_the_variables_and_the_remedy(name: str) -> None:
    environ, expected_parts = BROKEN[name]
    with pytest.raises(ConfigError) as caught:
        detect(environ)
    message = str(caught.value)
    assert all(part in message for part in expected_parts), message
    assert message.endswith(
        "start the job again through one launcher, and set none of these variables by hand"
    )
    assert "\n" not in message


def test_every_recording_is_used() -> None:
    elsewhere = {"salloc_mpich", "salloc_shell", "sbatch_script", "srun_each_task_openmpi"}
    assert {path.stem for path in ENVIRONMENTS.glob("*.json")} == EXPECTED.keys() | elsewhere
