"""Starting a Python program as two ranks through each launcher, for tests."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest
import slurm_cluster

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]

# Ranks share this machine's few cores; more threads than that only slow each other down.
RANK_ENVIRON = {
    "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests")]),
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
}


def skip_without(*needs: str) -> None:
    """Skip with the reason and the command that helps. Looks for modules without importing them."""
    for need in needs:
        if need in ("horovod", "mpi4py"):
            if importlib.util.find_spec(need) is None:
                pytest.skip(f"{need} is not installed: launch/build_horovod.sh, then `make install`")
        elif shutil.which(need) is None:
            package = {"mpirun": "openmpi-bin libopenmpi-dev", "mpirun.mpich": "mpich"}[need]
            pytest.skip(f"{need} is not installed: apt-get install {package}")


def skip_without_slurm() -> None:
    if missing := slurm_cluster.missing_programs():
        pytest.skip(f"no SLURM here ({', '.join(missing)} missing): {slurm_cluster.INSTALL_COMMAND}")


def run(command: list[str], timeout_seconds: float = 400) -> subprocess.CompletedProcess[str]:
    """Run a launcher to its end; a timeout ends its whole process group."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **RANK_ENVIRON},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired as expired:
        os.killpg(process.pid, signal.SIGKILL)
        _, stderr = process.communicate()
        raise AssertionError(
            f"{command[0]} did not end in {timeout_seconds} s:\n{stderr[-4000:]}"
        ) from expired
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def python(program: str, *arguments: object) -> list[str]:
    return [sys.executable, str(PROGRAMS / program), *(str(argument) for argument in arguments)]


def listened_to(command: list[str]) -> subprocess.Popen[str]:
    """Started, with what it says in pipes."""
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def are_gone(pids: Iterable[int], seconds: float = 20) -> bool:
    """Whether they are within that time, or zombies."""
    deadline = time.monotonic() + seconds
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
