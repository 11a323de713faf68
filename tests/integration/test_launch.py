"""Ranks under real launchers, started and supervised as `distxcept launch` does; programs/rank_victim.py plays them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from launchers import PROGRAMS, are_gone, listened_to, skip_without

pytestmark = pytest.mark.mpi

RANKS = 3
PATIENCE_SECONDS = 120.0


def start(
    folder: Path, *steps: str, via: str = "mpirun", restarts: int = 3, ranks: str = str(RANKS)
) -> subprocess.Popen[str]:
    skip_without("mpirun")
    program = str(PROGRAMS / "launch_victims.py")
    return listened_to([sys.executable, program, str(folder), str(restarts), ranks, via, *steps])


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, stdout, stderr


def pids(folder: Path, attempt: int) -> list[int]:
    return [
        int(path.read_text())
        for path in sorted(folder.glob(f"attempt-{attempt}-rank-*"))
        if path.stat().st_size
    ]


def wait_for_ranks(folder: Path) -> list[int]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(pids(folder, 0)) < RANKS:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return pids(folder, 0)


def test_output_of_every_rank_has_its_place(tmp_path):
    code, stdout, stderr = finish(start(tmp_path, "0"))
    assert (code, stdout) == (0, f"out 0 of {RANKS}\n"), stderr
    for rank in range(RANKS):
        lines = (tmp_path / "logs" / f"rank-{rank}.log").read_text().splitlines()
        assert [line for line in lines if line.startswith("out")] == [f"out {rank} of {RANKS}"]


@pytest.mark.parametrize(
    ("steps", "code", "attempts"),
    [
        (["kill:1", "kill:0", "0"], 0, 3),
        (["fail:2:3"], 3, 1),  # mpirun kills the others; the status file tells why
        (["6", "0"], 0, 2),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_lost_ranks_and_errors(tmp_path, steps, code, attempts):
    got, _, stderr = finish(start(tmp_path, *steps))
    assert got == code, stderr
    assert [len(pids(tmp_path, attempt)) for attempt in range(attempts + 1)] == [RANKS] * attempts + [0]
    assert are_gone(pids(tmp_path, 0))


@pytest.mark.parametrize("via", ["mpirun", "horovodrun"])
def test_a_request_to_stop_lets_every_rank_save(tmp_path, via):
    if via == "horovodrun":
        skip_without("horovod")
    process = start(tmp_path, "listens", via=via)
    running = wait_for_ranks(tmp_path)
    process.send_signal(signal.SIGTERM)
    code, _, stderr = finish(process)
    assert code == 75, stderr
    assert sorted(path.name for path in tmp_path.glob("saved-*")) == [
        f"saved-{rank}" for rank in range(RANKS)
    ]
    assert are_gone(running)


@pytest.mark.parametrize("via", ["mpirun", "horovodrun"])
def test_a_killed_launcher_leaves_no_orphan(tmp_path, via):
    if via == "horovodrun":
        skip_without("horovod")
    process = start(tmp_path, "listens", via=via)
    running = wait_for_ranks(tmp_path)
    tree = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    assert set(running) < set(tree)
    process.kill()
    process.wait()
    assert are_gone(tree)


def test_mpich(tmp_path, monkeypatch):
    """Its mpirun has other options, and another way to tell of a signal."""
    skip_without("mpirun.mpich")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mpirun").write_text('#!/bin/sh\nexec mpirun.mpich "$@"\n')
    (programs / "mpirun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "run"
    process = start(folder, "kill:1", "listens")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(pids(folder, 1)) < RANKS:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    code, _, stderr = finish(process)
    assert code == 75, stderr
    assert len(list(folder.glob("saved-*"))) == RANKS
    assert are_gone(pids(folder, 1))


FAKE_SSH = """\
#!/bin/sh
while :; do case $1 in -o) shift 2 ;; --) shift; break ;; -*) shift ;; *) break ;; esac; done
host=$1; shift
[ -e "{lost}/$host" ] && exit 255
exec unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$host" "$*"
"""


@pytest.fixture
def two_hosts(tmp_path, monkeypatch):
    """hosta and hostb are this host under two names, reached by an `ssh` of our own; a file of its name makes one vanish."""
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode:
        pytest.skip("only root may give a process another host name")
    programs, lost = tmp_path / "bin", tmp_path / "lost"
    for made in (programs, lost):
        made.mkdir()
    (programs / "ssh").write_text(FAKE_SSH.format(lost=lost))
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return lost


def test_goes_on_without_a_lost_host(tmp_path, two_hosts):
    folder = tmp_path / "run"
    process = start(folder, "listens", "0", ranks="hosta:1,hostb:2")
    wait_for_ranks(folder)
    (two_hosts / "hostb").touch()
    daemon = psutil.Process(int((folder / "attempt-0-rank-2").read_text())).parent()
    assert daemon is not None and daemon.name() == "orted"
    daemon.kill()
    code, stdout, stderr = finish(process)
    assert code == 0, stderr
    assert "without hostb, as 1 of 3 ranks" in stderr
    assert stdout.splitlines() == ["out 0 of 3", "out 0 of 1"]
    assert are_gone(pids(folder, 0))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ranks_on_other_hosts_end_with_the_launcher(tmp_path, two_hosts, number):
    folder = tmp_path / "run"
    process = start(folder, "listens", ranks="hosta:1,hostb:2")
    running = wait_for_ranks(folder)
    daemons = [psutil.Process(pid).ppid() for pid in running]
    process.send_signal(number)
    code, _, stderr = finish(process)
    assert code == (75 if number == signal.SIGTERM else -signal.SIGKILL), stderr
    assert len(list(folder.glob("saved-*"))) == (RANKS if number == signal.SIGTERM else 0)
    assert are_gone([*running, *daemons])
