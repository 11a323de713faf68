"""A real training through `distxcept launch`: a killed rank, open sockets, secrets. `make soak` has the full counts."""

import json
import os
import pickle
import random
import socket
import time
from pathlib import Path

import pytest
from launched_training import CONFIG, LaunchedTraining, difference
from launchers import skip_without

pytestmark = pytest.mark.mpi

SECRET = "marker-7f3a9c-secret"
UPDATES = CONFIG["run"]["updates"]


class Touch:
    """Unpickled, it creates a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def send_pickle(address: tuple[str, int], canary: Path) -> None:
    try:
        with socket.create_connection(address, timeout=2) as connection:
            connection.settimeout(0.5)
            connection.sendall(pickle.dumps(Touch(canary)))
            connection.recv(100)
    except OSError:
        pass  # refused, or closed on us: well done


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Two ranks; rank 1 is killed in the middle; every listening port is sent a pickle."""
    skip_without("mpirun", "horovod", "mpi4py")
    folder = tmp_path_factory.mktemp("watched")
    job = LaunchedTraining(folder, "x", "--np=2", "--max-restarts=2", environ={"MY_TOKEN": SECRET})
    job.wait_until("update 5", lambda: len(job.updates()) >= 5)
    job.open_ports = job.listeners()
    for _, address, port in job.open_ports:
        send_pickle(("127.0.0.1" if address in ("0.0.0.0", "::") else address, port), folder / "canary")
    job.kill(1)
    job.wait_until("the end", lambda: len(job.updates()) >= UPDATES)
    job.code, job.output = job.finish()
    return job


def test_goes_on_after_a_lost_rank(watched):
    assert watched.code == 0, watched.output
    assert watched.updates() == list(range(1, UPDATES + 1))
    assert "restart 1 of at most 2" in watched.output
    assert watched.left_over() == []


def test_the_run_tells_how_it_was_launched(watched):
    found = json.loads((watched.run_folder / "env.json").read_text())
    assert found["command"][:2] == ["distxcept", "launch"]
    assert "--np=2" in found["command"]
    assert (found["launcher"], found["ranks"]) == ("mpirun", 2)


def test_nobody_else_can_reach_the_ranks(watched):
    """Open MPI's mpirun always waits for its daemons on all addresses; nothing else may."""
    assert watched.open_ports, "MPI listens somewhere, or this looked in the wrong place"
    reachable = [port for port in watched.open_ports if port[1] not in ("127.0.0.1", "::1")]
    assert {program for program, _, _ in reachable} <= {"mpirun"}, watched.open_ports
    assert not (watched.run_folder.parent / "canary").exists()


def test_no_secret_on_a_command_line_or_in_the_run_folder(watched):
    assert any("MY_TOKEN" in line or "mpirun" in line for line in watched.command_lines)
    assert not [line for line in watched.command_lines if SECRET in line]
    holding = [
        path
        for path in watched.run_folder.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert holding == []
    assert SECRET not in watched.output


def test_run_folder_is_not_writable_for_others(watched):
    writable = [
        path for path in [watched.run_folder, *watched.run_folder.rglob("*")] if path.stat().st_mode & 0o002
    ]
    assert writable == []


@pytest.mark.soak
def test_ten_random_kills(tmp_path):
    """Three ranks, one killed at a random update: same weights, no orphan, at most 60 s to go on."""
    skip_without("mpirun", "horovod", "mpi4py")
    reference = LaunchedTraining(tmp_path, "reference", "--np=1")
    code, output = reference.finish()
    assert code == 0, output
    draw = random.Random(7)
    for number in range(10):
        job = LaunchedTraining(tmp_path, f"run-{number}", "--np=3", "--max-restarts=3")
        at, rank = draw.randrange(1, UPDATES - 5), draw.randrange(3)
        job.wait_until(f"update {at}", lambda job=job, at=at: len(job.updates()) >= at)
        job.kill(rank)
        killed, known = time.monotonic(), len(job.updates())
        job.wait_until("the next update", lambda job=job, known=known: len(job.updates()) > known + 1)
        seconds = time.monotonic() - killed
        code, output = job.finish()
        assert code == 0, output
        apart = difference(job.tensors(), reference.tensors())
        print(
            f"run {number}: rank {rank} killed at update {at}, went on after {seconds:.1f} s, weights {apart:.1e} apart"
        )
        assert apart < 1e-11
        assert seconds <= 60
        assert job.left_over() == []
