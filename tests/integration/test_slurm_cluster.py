"""The SLURM that other tests stand on: it runs, it preempts, and it leaves nothing behind."""

import sys
from pathlib import Path

import psutil
import pytest
import slurm_cluster
from slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slurm


def test_tasks_run_on_both_nodes(slurm: SlurmCluster) -> None:
    done = slurm.run(["srun", "-N2", "-n2", "sh", "-c", "echo $SLURM_PROCID $SLURMD_NODENAME"])
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "0 node1", "1 node2"]


@pytest.mark.parametrize("mpi", ["pmix", "pmi2", "none"])
def test_detection_agrees_with_the_running_slurm(slurm: SlurmCluster, mpi: str) -> None:
    """The recordings of the unit tests are old; this is SLURM as it is installed."""
    program = (
        "import os; from distxcept.cluster import detect; p = detect(os.environ); "
        "print(p.launcher, p.rank, p.size, p.local_rank, p.local_size, p.host, p.wire_up)"
    )
    done = slurm.run(
        ["srun", f"--mpi={mpi}", "-N2", "-n2", sys.executable, "-c", program], cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    wire_up = None if mpi == "none" else mpi
    assert sorted(done.stdout.splitlines()) == [
        f"srun 0 2 0 1 node1 {wire_up}",
        f"srun 1 2 0 1 node2 {wire_up}",
    ]


def test_a_job_of_the_high_partition_preempts_and_the_low_one_is_run_again(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    victim = tmp_path / "victim.sh"
    victim.write_text(f"#!/bin/sh\necho started >> {tmp_path}/starts\nexec sleep 600\n")
    urgent = tmp_path / "urgent.sh"
    urgent.write_text(f"#!/bin/sh\nwhile [ ! -e {tmp_path}/let-go ]; do sleep 0.1; done\n")
    low = slurm.submit(victim, "--partition=low", "-N2", "--exclusive")
    starts = tmp_path / "starts"
    slurm.wait("the low job to start", lambda: starts.exists() and starts.read_text() == "started\n")
    high = slurm.submit(urgent, "--partition=high", "-N2", "--exclusive")
    slurm.wait_for_job(high, "RUNNING", timeout_seconds=30)
    assert slurm.job_state(low) in ("PENDING", "COMPLETING", "REQUEUED")
    (tmp_path / "let-go").touch()
    slurm.wait("the low job to start again", lambda: starts.read_text() == "started\n" * 2)


def test_stop_ends_a_job_that_ignores_sigterm_and_removes_the_folder(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    stubborn = tmp_path / "stubborn.sh"
    stubborn.write_text(f"#!/bin/sh\ntrap '' TERM\necho $$ > {tmp_path}/pid\nwhile :; do sleep 1; done\n")
    pid_file = tmp_path / "pid"
    with SlurmCluster(nodes=1, kill_wait_seconds=300) as cluster:
        cluster.submit(stubborn)
        cluster.wait("the job to write its pid", lambda: pid_file.exists() and pid_file.read_text() != "")
        job = psutil.Process(int(pid_file.read_text()))
        pids = [job.pid, job.ppid(), *(daemon.pid for daemon in cluster.daemons)]
        cluster.cancel_all = lambda **_: None  # leave the job to stop() itself
    assert not cluster.folder.exists()
    assert [pid for pid in pids if is_running(pid)] == []


def test_a_daemon_that_cannot_start_is_named_with_its_log(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_cluster, "SLURM_CONF", slurm_cluster.SLURM_CONF + "NoSuchKey=1\n")
    cluster = SlurmCluster(nodes=1)
    with pytest.raises(RuntimeError, match=r"(?s)slurmctld.*ended with 1.*NoSuchKey"):
        cluster.__enter__()
    assert not cluster.folder.exists()


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
