"""The sbatch files as they are, on a real two-node SLURM: done, warned, preempted, requeued, as an array.

The launcher is real, the training is played by programs/stub_training.py; test_slurm_train.py trains for real.
"""

import os
import signal
import sys
from pathlib import Path

import pytest
import yaml
from launchers import PROGRAMS, REPOSITORY
from slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slurm

CONFIG = {"run": {"updates": 40}, "data": {"train": {"kind": "synthetic", "samples": 8, "classes": 2}}}
UPDATES = 40
PATIENCE_SECONDS = 120.0


class Jobs:
    """Submits the files of slurm/ from a folder of its own, with the stub in place of `distxcept`."""

    def __init__(self, slurm: SlurmCluster, folder: Path):
        self.slurm, self.folder = slurm, folder
        programs = folder / "bin"
        programs.mkdir()
        stub = programs / "distxcept"
        stub.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAMS / "stub_distxcept.py"} "$@"\n')
        stub.chmod(0o755)
        self.environ = {
            "PATH": f"{programs}{os.pathsep}{slurm.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
        }
        (folder / "cfg.yaml").write_text(yaml.safe_dump(CONFIG))

    def submit(self, script: str, *arguments: str, options: tuple[str, ...] = ()) -> int:
        command = ["sbatch", "--parsable", *options, str(REPOSITORY / "slurm" / script), *arguments]
        done = self.slurm.run(command, extra_environ=self.environ, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.split(";")[0])

    def updates(self, run: str = "cfg") -> list[tuple[int, int, int]]:
        """(update, restart count of the job, ranks), in the order of their happening."""
        path = self.folder / "runs" / run / "updates.txt"
        if not path.exists():
            return []
        lines = (line.split() for line in path.read_text().splitlines())
        return [(int(update), int(restarts), int(ranks)) for update, restarts, ranks in lines]

    def wait_for_update(self, number: int) -> None:
        self.slurm.wait(
            f"update {number}", lambda: len(self.updates()) >= number, timeout_seconds=PATIENCE_SECONDS
        )

    def go(self) -> None:
        (self.folder / "runs" / "cfg" / "go").touch()

    def finish(self, job: int) -> str:
        state = self.slurm.wait_for_job(
            job, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", timeout_seconds=PATIENCE_SECONDS
        )
        return state + self.output()

    def output(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("slurm-*.out")))


@pytest.fixture
def jobs(slurm: SlurmCluster, tmp_path: Path) -> Jobs:
    return Jobs(slurm, tmp_path)


@pytest.mark.parametrize(
    ("script", "options", "ranks"),
    [
        ("single.sbatch", (), 1),
        ("train.sbatch", (), 2),
        ("train.sbatch", ("--ntasks-per-node=2",), 4),
        ("train.sbatch", ("--export=ALL,VIA=mpirun",), 2),
    ],
)
def test_runs_to_its_end(jobs: Jobs, script: str, options: tuple[str, ...], ranks: int) -> None:
    job = jobs.submit(script, "cfg.yaml", f"run.updates={UPDATES}", options=options)
    assert jobs.finish(job).startswith("COMPLETED")
    assert jobs.updates() == [(number, 0, ranks) for number in range(1, UPDATES + 1)]


@pytest.mark.parametrize(
    ("options", "cores"),
    [
        (("--exclusive", "--ntasks-per-node=1"), 2),
        (("--exclusive", "--ntasks-per-node=2"), 1),
        (("--ntasks-per-node=1", "--cpus-per-task=1"), 1),
    ],
)
def test_ranks_get_their_part_of_the_cores(jobs: Jobs, options: tuple[str, ...], cores: int) -> None:
    """What `launch` would run in a job on nodes of two cores."""
    script = jobs.folder / "show.sh"
    command = f"{sys.executable} -m distxcept.cli.main launch cfg.yaml --via srun --dry-run"
    script.write_text(f"#!/bin/sh\n{command}\n")
    done = jobs.slurm.run(
        ["sbatch", "--wait", "--nodes=2", "--output=slurm-%j.out", *options, str(script)],
        extra_environ=jobs.environ,
        cwd=jobs.folder,
    )
    assert done.returncode == 0, jobs.output()
    assert f" --cpus-per-task={cores} " in jobs.output()


def warn(jobs: Jobs, job: int) -> None:
    """What SLURM does at the end of the time, without waiting a minute for it."""
    assert jobs.slurm.run(["scancel", "--batch", "--signal=USR1", str(job)]).returncode == 0


def requeue(jobs: Jobs, job: int) -> None:
    assert jobs.slurm.run(["scontrol", "requeue", str(job)]).returncode == 0


def preempt(jobs: Jobs, job: int) -> None:
    urgent = jobs.folder / "urgent.sh"
    urgent.write_text("#!/bin/sh\nexit 0\n")
    high = jobs.slurm.submit(
        urgent, "--partition=high", "-N2", "--exclusive", f"--output={jobs.folder}/urgent.out"
    )
    jobs.slurm.wait_for_job(high, "RUNNING", "COMPLETED", timeout_seconds=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("script", "event"),
    [("single.sbatch", warn), ("train.sbatch", warn), ("train.sbatch", requeue), ("train.sbatch", preempt)],
)
def test_interrupted_once(jobs: Jobs, script: str, event) -> None:
    """No update is lost or done twice, the job is requeued exactly once, and goes on by itself."""
    job = jobs.submit(script, "cfg.yaml", f"run.updates={UPDATES}", "run.seed=1", options=("--exclusive",))
    jobs.wait_for_update(3)
    event(jobs, job)
    jobs.slurm.wait(
        "the job to leave its nodes",
        lambda: jobs.slurm.job_state(job) != "RUNNING" or "going on" in jobs.output(),
        timeout_seconds=PATIENCE_SECONDS,
    )
    jobs.go()
    state = jobs.finish(job)
    assert state.startswith("COMPLETED"), state
    updates = jobs.updates()
    assert [number for number, _, _ in updates] == list(range(1, UPDATES + 1)), state
    restarts = [count for _, count, _ in updates]
    assert restarts == sorted(restarts)
    assert set(restarts) == {0, 1}, state
    assert 3 <= restarts.count(0) <= 4, "it must stop after the update in which it was asked"


def test_array(jobs: Jobs) -> None:
    (jobs.folder / "sweep.txt").write_text("run.updates=5\nrun.updates=7 optimizer.learning_rate=0.1\n")
    job = jobs.submit("array.sbatch", "cfg.yaml", "sweep.txt", options=("--array=1-2",))
    for task in (1, 2):
        jobs.slurm.wait(
            f"task {task}",
            lambda task=task: (
                f"{job}_{task}" not in jobs.slurm.run(["squeue", "--noheader", "--array"]).stdout
            ),
            timeout_seconds=PATIENCE_SECONDS,
        )
    jobs.slurm.wait(
        "both runs",
        lambda: (len(jobs.updates("cfg-1")), len(jobs.updates("cfg-2"))) == (5, 7),
        timeout_seconds=PATIENCE_SECONDS,
    )


def test_scancel_saves_and_does_not_come_back(jobs: Jobs) -> None:
    job = jobs.submit("train.sbatch", "cfg.yaml", f"run.updates={UPDATES}", "run.seed=1")
    jobs.wait_for_update(3)
    assert jobs.slurm.run(["scancel", str(job)]).returncode == 0
    assert jobs.finish(job).startswith("CANCELLED")
    checkpoints = jobs.folder / "runs" / "cfg" / "checkpoints"
    jobs.slurm.wait("the snapshot", lambda: any(checkpoints.glob("update-0000000[34]")), timeout_seconds=20)
    assert len(jobs.updates()) <= 4


# -- full counts ------------------------------------------------------------------------------------------


def time_limit(jobs: Jobs, job: int) -> None:
    """Nothing to do: SLURM warns half a minute before the end of the one minute that the job has."""
    jobs.slurm.wait(
        "the warning",
        lambda: "time is up" in jobs.output() or jobs.slurm.job_state(job) != "RUNNING",
        timeout_seconds=PATIENCE_SECONDS,
    )


def restart_daemon(slurm: SlurmCluster, *command: str) -> None:
    """slurmd is killed. The controller is restarted as an administrator does it, which saves its state: killed in the
    first seconds of a job it would forget that it has started it.
    """
    (daemon,) = (daemon for daemon in slurm.daemons if daemon.args == command)
    slurm.daemons.remove(daemon)
    daemon.send_signal(signal.SIGKILL if command[0] == "slurmd" else signal.SIGTERM)
    daemon.wait()
    slurm._start(*command)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("script", ["single.sbatch", "train.sbatch"])
@pytest.mark.parametrize("event", [time_limit, preempt, requeue])
def test_three_times_each(jobs: Jobs, event, script: str, number: int) -> None:
    options = ("--exclusive", *(("--time=1", "--signal=B:USR1@30") if event is time_limit else ()))
    job = jobs.submit(script, "cfg.yaml", f"run.updates={UPDATES}", "run.seed=1", options=options)
    jobs.wait_for_update(3)
    event(jobs, job)
    jobs.slurm.wait(
        "the job to leave its nodes", lambda: jobs.slurm.job_state(job) != "RUNNING", PATIENCE_SECONDS
    )
    jobs.go()
    state = jobs.finish(job)
    assert state.startswith("COMPLETED"), state
    assert [update for update, _, _ in jobs.updates()] == list(range(1, UPDATES + 1)), state
    assert {restarts for _, restarts, _ in jobs.updates()} == {0, 1}, state


@pytest.mark.soak
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(
    "daemon", [("slurmd", "-D", "-N", "node2"), ("slurmctld", "-D")], ids=["slurmd", "slurmctld"]
)
def test_daemons_are_restarted_under_the_job(jobs: Jobs, daemon: tuple[str, ...], number: int) -> None:
    job = jobs.submit("train.sbatch", "cfg.yaml", f"run.updates={UPDATES}", "run.seed=1")
    jobs.wait_for_update(3)
    restart_daemon(jobs.slurm, *daemon)
    jobs.slurm.wait("the cluster to answer", lambda: jobs.slurm.job_state(job) != "UNKNOWN", PATIENCE_SECONDS)
    jobs.go()
    state = jobs.finish(job)
    assert state.startswith("COMPLETED"), state
    assert jobs.updates() == [(update, 0, 2) for update in range(1, UPDATES + 1)], state


@pytest.mark.soak
@pytest.mark.parametrize("number", range(3))
def test_a_task_of_an_array_is_requeued_alone(jobs: Jobs, number: int) -> None:
    line = f"run.name=cfg run.updates={UPDATES} run.seed=1\n"
    (jobs.folder / "sweep.txt").write_text(f"run.updates=5\n{line}")
    job = jobs.submit("array.sbatch", "cfg.yaml", "sweep.txt", options=("--array=1-2",))
    jobs.wait_for_update(3)
    assert jobs.slurm.run(["scancel", "--batch", "--signal=USR1", f"{job}_2"]).returncode == 0
    jobs.slurm.wait("the requeue", lambda: "back into the queue" in jobs.output(), PATIENCE_SECONDS)
    jobs.go()
    jobs.slurm.wait("all updates", lambda: len(jobs.updates()) >= UPDATES, PATIENCE_SECONDS)
    assert [update for update, _, _ in jobs.updates()] == list(range(1, UPDATES + 1)), jobs.output()
    assert {restarts for _, restarts, _ in jobs.updates()} == {0, 1}
    assert [update for update, _, _ in jobs.updates("cfg-1")] == list(range(1, 6))
