"""The SLURM job that this process runs in: back into the queue, exactly once, when its time is up.

SLURM warns the batch process with SIGUSR1 (`--signal=B:USR1@120`): the ranks save, and nobody but us will start the job
again. On preemption, `scontrol requeue` and `scancel` it sends SIGTERM instead, and itself decides what becomes of the
job: asking for a requeue then would start it twice.
"""

import signal
import subprocess
from collections.abc import Mapping

from distxcept.errors import StopRequested


def should_requeue(code: int, stop_signal: int | None, progressed: bool) -> bool:
    """A job that saves nothing new in its whole time would be requeued for ever."""
    return code == StopRequested.exit_code and stop_signal in (None, signal.SIGUSR1) and progressed


def job_name(environ: Mapping[str, str]) -> str | None:
    """The job as scontrol calls it; a task of an array by its own number."""
    if "SLURM_ARRAY_JOB_ID" in environ and "SLURM_ARRAY_TASK_ID" in environ:
        return f"{environ['SLURM_ARRAY_JOB_ID']}_{environ['SLURM_ARRAY_TASK_ID']}"
    return environ.get("SLURM_JOB_ID")


def requeue(job: str) -> str | None:
    """None, or why it did not work. SLURM ends this process soon afterwards."""
    for number in (signal.SIGTERM, signal.SIGCONT):
        signal.signal(number, signal.SIG_IGN)
    try:
        done = subprocess.run(
            ["scontrol", "requeue", job], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else " ".join((done.stderr or done.stdout).split())
