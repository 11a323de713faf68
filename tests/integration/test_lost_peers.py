"""One of three ranks comes to grief: the others end in time, and the user learns which one and why.

Real processes and real deaths, but no TensorFlow and no launcher: nobody ends the survivors except they themselves.
`test_lost_ranks.py` does the same to a real training.
"""

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from launchers import RANK_ENVIRON, python

from distxcept.cluster.status import read_statuses, root_cause

TIMEOUT = 3.0


@dataclass
class Job:
    folder: Path
    processes: list[subprocess.Popen] = field(default_factory=list)

    def start(self, *fates: str, timeouts: tuple[float, ...] = (TIMEOUT,) * 3) -> None:
        for rank, fate in enumerate(fates):
            program = python("mock_rank.py", self.folder, rank, len(fates), timeouts[rank], fate)
            stderr = (self.folder / f"stderr-{rank}").open("w")
            self.processes.append(
                subprocess.Popen(program, stderr=stderr, env={**os.environ, **RANK_ENVIRON}, text=True)
            )
            stderr.close()

    def wait_until_all_wait(self) -> None:
        paths = [self.folder / f"waiting-{rank}" for rank in range(len(self.processes))]
        deadline = time.monotonic() + 60
        while not all(path.exists() for path in paths):
            assert time.monotonic() < deadline, self.stderr()
            time.sleep(0.01)

    def exit_codes(self, ranks: list[int]) -> list[int]:
        return [self.processes[rank].wait(timeout=TIMEOUT + 60) for rank in ranks]

    def stderr(self) -> list[str]:
        """Every line that any rank told the user."""
        lines = []
        for rank in range(len(self.processes)):
            lines += (self.folder / f"stderr-{rank}").read_text().splitlines()
        return [line for line in lines if line.startswith("distxcept")]


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    yield job
    for process in job.processes:
        process.kill()
        process.wait()


HOST = socket.gethostname()


GONE = "is lost: its process is gone; its last known update was 3"
STOPPED = f"is lost: no sign of life for {TIMEOUT:g} s, its process is stopped; its last known update was 3"


@pytest.mark.parametrize(
    ("fate", "victim", "message", "own_code"),
    [
        ("kill", 0, GONE, -signal.SIGKILL),
        ("kill", 1, GONE, -signal.SIGKILL),
        ("segfault", 1, GONE, -signal.SIGSEGV),
        ("abort", 2, GONE, -signal.SIGABRT),
        ("stop", 0, STOPPED, None),
        ("stop", 2, STOPPED, None),
        ("raise", 0, "ValueError: the planted error; the traceback is in", 1),
        ("raise", 1, "ValueError: the planted error; the traceback is in", 1),
        ("refuse", 1, "this rank cannot read its images", 3),
        ("sysexit", 2, "SystemExit: 3", 3),
    ],
)
def test_the_others_end_and_the_victim_is_named_once(job, fate, victim, message, own_code):
    fates = ["wait"] * 3
    fates[victim] = fate
    job.start(*fates)
    others = [rank for rank in range(3) if rank != victim]
    assert job.exit_codes(others) == [6, 6]
    if own_code is not None:
        assert job.exit_codes([victim]) == [own_code]
    (line,) = job.stderr()
    assert message in line
    assert f"rank {victim} on {HOST}" in line
    statuses = read_statuses(job.folder)
    assert all(statuses[rank].kind == "PeerLostError" for rank in others)
    assert all(f"rank {victim} on {HOST}" in statuses[rank].message for rank in others)
    cause = root_cause(statuses.values())
    assert (cause.rank == victim) == (fate in ("raise", "refuse", "sysexit"))
    if fate in ("segfault", "abort"):
        assert "mock_rank.py" in (job.folder / "logs" / f"rank-{victim}.log").read_text()


def test_an_error_that_is_a_consequence_is_not_the_message(job):
    """A rank dies; another gets Horovod's error at once, before anybody could see the death."""
    job.start("kill", "lost", "wait")
    assert job.exit_codes([1, 2]) == [6, 6]
    assert not [line for line in job.stderr() if "Horovod" in line]
    assert f"rank 0 on {HOST} is lost: its process is gone" in job.stderr()[0]


def test_an_error_of_horovods_that_no_loss_explains(job):
    """As when it gives up a reduction that a rank never came to."""
    job.start("lost", "lost", "lost")
    assert job.exit_codes([0, 1, 2]) == [6, 6, 6]
    assert any(
        "a reduction failed, and no rank says why: HorovodInternalError" in line for line in job.stderr()
    )


def test_what_all_ranks_decide_is_told_by_the_chief_and_keeps_its_code(job):
    job.start("agree", "agree", "agree")
    assert job.exit_codes([0, 1, 2]) == [5, 5, 5]
    assert job.stderr() == ["distxcept train: all ranks see the same infinity"]


def test_a_peer_that_is_done_is_not_lost(job):
    job.start("wait", "done", "wait")
    assert job.exit_codes([1]) == [0]
    job.wait_until_all_wait()
    job.processes[2].kill()
    assert job.exit_codes([0]) == [6]
    (line,) = job.stderr()
    assert "rank 2 on" in line


def test_a_second_signal_ends_a_process_that_hangs(job):
    job.start("wait", "wait")
    job.wait_until_all_wait()
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = job.processes[0 if number == signal.SIGINT else 1]
        process.send_signal(number)
        if number == signal.SIGTERM:
            continue
        while "stopping after this update" not in (job.folder / "stderr-0").read_text():
            time.sleep(0.01)
        time.sleep(0.6)  # longer than one request may take to arrive twice
        process.send_signal(number)
        assert job.exit_codes([0]) == [code]


def test_after_a_request_to_stop_a_rank_that_never_comes_is_not_waited_for(job):
    """All live and look healthy, but the reduction does not complete."""
    job.start("wait", "wait")
    job.wait_until_all_wait()
    for process in job.processes:
        process.send_signal(signal.SIGTERM)
    assert job.exit_codes([0, 1]) == [6, 6]
    assert "no answer from the other ranks" in job.stderr()[0]


def test_ranks_with_another_config_are_refused_with_the_difference(job):
    job.start("wait", "wait", timeouts=(3.0, 4.0))
    assert job.exit_codes([0, 1]) == [2, 2]
    (line,) = job.stderr()
    assert (
        f"rank 1 on {HOST} has another config than rank 0 on {HOST} (engine.peer_timeout: 3.0 on rank 0, 4.0 there)"
        in line
    )


def test_the_second_job_in_a_run_folder_is_refused(job):
    job.start("wait")
    job.wait_until_all_wait()
    (job.folder / "message-1-0").unlink()
    second = subprocess.run(
        python("mock_rank.py", job.folder, 0, 1, TIMEOUT, "done"),
        env={**os.environ, **RANK_ENVIRON},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert second.returncode == 2
    assert f"is in use by process {job.processes[0].pid} on {HOST}" in second.stderr
    assert read_statuses(job.folder)[0].pid == job.processes[0].pid
