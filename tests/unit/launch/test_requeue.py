"""Who puts a job back into the queue: we on the warning, SLURM itself in every other case, nobody without progress."""

import signal

import pytest

from distxcept.launch.slurm_job import job_name, should_requeue


@pytest.mark.parametrize(
    ("code", "stop_signal", "progressed", "expected"),
    [
        (75, signal.SIGUSR1, True, True),
        (75, None, True, True),  # the ranks were warned directly
        (75, signal.SIGTERM, True, False),  # preempted or cancelled: SLURM decides
        (75, signal.SIGINT, True, False),
        (75, signal.SIGUSR1, False, False),  # it would go on so for ever
        (0, signal.SIGUSR1, True, False),
        (6, None, True, False),
        (143, signal.SIGUSR1, True, False),
    ],
)
def test_requeue(code, stop_signal, progressed, expected):
    assert should_requeue(code, stop_signal, progressed) is expected


def test_names():
    assert job_name({}) is None
    assert job_name({"SLURM_JOB_ID": "9"}) == "9"
    assert job_name({"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}) == "7_2"
