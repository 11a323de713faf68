"""Cores of a host, divided between its ranks."""

import subprocess
import sys

import pytest

from distxcept.cluster.affinity import binding_notice, share_of_cpus
from distxcept.cluster.detection import detect
from distxcept.cluster.placement import Placement


@pytest.mark.parametrize(
    ("cpus", "ranks", "expected"),
    [
        ([0, 1, 2, 3], 2, [[0, 1], [2, 3]]),
        ([4, 5, 6, 7, 8], 2, [[4, 5], [6, 7, 8]]),
        ([3], 1, [[3]]),
        ([0, 1], 3, [[0, 1]] * 3),
        (list(range(64)), 4, [list(range(16 * k, 16 * k + 16)) for k in range(4)]),
    ],
)
def test_shares(cpus, ranks, expected):
    assert [share_of_cpus(cpus, rank, ranks) for rank in range(ranks)] == expected


@pytest.mark.parametrize(
    ("placement", "host", "rank", "told"),
    [
        (Placement(launcher="mpirun", size=2, local_size=2, bound=True), 64, 1, True),
        (Placement(launcher="mpirun", size=2, local_size=2, bound=True), 64, 32, False),
        (Placement(launcher="mpirun", size=2, local_size=2, bound=True), 2, 1, False),
        (Placement(launcher="mpirun", size=2, local_size=2), 64, 1, False),
        (Placement(launcher="srun", size=2, local_size=2, bound=True), 64, 1, False),
    ],
)
def test_starved_ranks_are_told(placement, host, rank, told):
    assert (binding_notice(placement, host, rank) is not None) == told


def test_who_binds():
    open_mpi = {f"OMPI_COMM_WORLD_{name}": value for name, value in
                {"RANK": "0", "SIZE": "2", "LOCAL_RANK": "0", "LOCAL_SIZE": "2"}.items()}  # fmt: skip
    assert not detect(open_mpi).bound
    assert detect({**open_mpi, "OMPI_MCA_orte_bound_at_launch": "1"}).bound
    srun = {
        "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "0", "SLURM_LOCALID": "1",
        "SLURM_STEP_TASKS_PER_NODE": "2",
    }  # fmt: skip
    assert not detect(srun).bound
    assert not detect({**srun, "SLURM_CPU_BIND_TYPE": "none"}).bound
    assert detect({**srun, "SLURM_CPU_BIND_TYPE": "mask_cpu:"}).bound


def test_threads_and_cores_of_a_real_process():
    program = (
        "import os; from distxcept.cluster.affinity import take_own_cpus; from distxcept.cluster import Placement\n"
        "before = sorted(os.sched_getaffinity(0))\n"
        "for bound in (True, False):\n"
        "    threads = take_own_cpus(Placement(launcher='srun', size=2, local_size=2, rank=1, local_rank=1, bound=bound))\n"
        "    print(threads, sorted(os.sched_getaffinity(0)) == (before if bound else before[len(before) // 2:]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    bound, divided = done.stdout.splitlines()
    assert bound.endswith("True") and divided.endswith("True")
