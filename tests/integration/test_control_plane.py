"""The mpi4py control plane under real launchers, without Horovod."""

import re

import pytest
from launchers import MPIRUN, RANK_ENVIRON, python, run, skip_without
from slurm_cluster import SlurmCluster


@pytest.mark.mpi
def test_values_cross_three_ranks() -> None:
    skip_without("mpi4py", "mpirun")
    done = run([*MPIRUN, "-np", "3", *python("control_plane.py", "values")])
    assert done.returncode == 0, done.stderr[-4000:]
    # mpirun may put the lines of two ranks into one.
    assert sorted(re.findall(r"rank \d agrees", done.stdout)) == [f"rank {rank} agrees" for rank in range(3)]


@pytest.mark.mpi
def test_a_missing_rank_is_named_and_the_job_is_ended() -> None:
    skip_without("mpi4py", "mpirun")
    done = run([*MPIRUN, "-np", "3", *python("control_plane.py", "late")], timeout_seconds=40)
    assert done.returncode == 6, done.stderr[-4000:]
    assert "waited 1 s in vain for rank 1 of 3" in done.stderr


@pytest.mark.mpi
def test_tasks_started_by_another_mpi_than_ours_are_refused() -> None:
    """Else each of them would be rank 0 of 1, and train alone."""
    skip_without("mpi4py", "mpirun", "mpirun.mpich")
    done = run(["mpirun.mpich", "-np", "2", *python("control_plane.py", "values")])
    assert done.returncode == 2, done.stderr[-4000:]
    assert "of 2, but the MPI library (Open MPI" in done.stderr
    assert "says rank 0 of 1: they belong to different MPIs" in done.stderr


@pytest.mark.slurm
def test_srun_without_mpi_is_refused(slurm: SlurmCluster) -> None:
    done = slurm.run(
        ["srun", "--mpi=none", "-N2", "-n2", *python("control_plane.py", "values")],
        extra_environ=RANK_ENVIRON,
    )
    assert done.returncode == 2, done.stderr
    assert "srun started 2 tasks without MPI" in done.stderr and "srun --mpi=pmix" in done.stderr
