"""One job in a run folder; what a dead one left behind does not count."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from distxcept.cluster.lock import NAME, RunLock
from distxcept.cluster.status import RankStatus, own_status, write_status
from distxcept.errors import ConfigError

REPOSITORY = Path(__file__).parents[3]
HOLD = """
import sys, time
from pathlib import Path
from distxcept.cluster.lock import RunLock
lock = RunLock(Path(sys.argv[1]), 30.0)
lock.acquire()
print("held", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_second_process_is_refused_and_told_who_holds_it(tmp_path, holder):
    with pytest.raises(
        ConfigError, match=f"in use by process {holder.pid} on {socket.gethostname()}, begun 2"
    ):
        RunLock(tmp_path, 30.0).acquire()


def test_a_killed_holder_holds_nothing(tmp_path, holder):
    holder.kill()
    holder.wait()
    lock = RunLock(tmp_path, 30.0)
    lock.acquire()
    assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
    lock.release()
    assert not (tmp_path / NAME).exists()


def test_released_and_taken_again(tmp_path):
    first, second = RunLock(tmp_path, 30.0), RunLock(tmp_path, 30.0)
    first.acquire()
    with pytest.raises(ConfigError):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": "h"}', "\x00" * 50])
def test_a_damaged_lock_file_is_nobodys(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    RunLock(tmp_path, 30.0).acquire()


def test_a_child_that_outlived_its_parent_does_not_hold_it(tmp_path, holder):
    """It inherits the open file and with it the kernel's lock, but the pid in the file is that of the dead parent."""
    held = json.loads((tmp_path / NAME).read_text())
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / NAME).write_text(json.dumps(held | {"pid": gone.pid}))
    RunLock(tmp_path, 30.0).acquire()
    assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()


def elsewhere(folder: Path, **changes) -> RankStatus:
    """A chief on another host, which no kernel here can be asked about."""
    (folder / NAME).write_text(json.dumps({"host": "elsewhere", "pid": 7, "started": time.time()}))
    status = replace(own_status(0, 1), host="elsewhere", pid=7, state="running", **changes)
    write_status(folder, status)
    return status


def test_a_holder_on_another_host_lives_while_its_status_changes(tmp_path):
    status = elsewhere(tmp_path)

    def beat(seconds: float) -> None:
        write_status(tmp_path, replace(status, time=status.time + 2))

    with pytest.raises(ConfigError, match="in use by process 7 on elsewhere"):
        RunLock(tmp_path, 30.0, sleep=beat).acquire()


@pytest.mark.parametrize("ending", ["silent", "long past", "stopped", "another process", "no status"])
def test_a_holder_on_another_host_that_is_gone(tmp_path, ending):
    status = elsewhere(tmp_path)
    if ending == "long past":
        write_status(tmp_path, replace(status, time=time.time() - 1e4))
    elif ending == "stopped":
        write_status(tmp_path, replace(status, state="stopped"))
    elif ending == "another process":
        write_status(tmp_path, replace(status, pid=8))
    elif ending == "no status":
        (tmp_path / "status" / "rank-0.json").unlink()
    slept = []
    RunLock(tmp_path, 5.0, sleep=slept.append).acquire()
    assert (sum(slept) > 5.0) == (ending == "silent")


def test_another_process_with_the_same_pid_is_not_the_holder(tmp_path, holder):
    """After a reboot, pids start anew."""
    held = json.loads((tmp_path / NAME).read_text())
    assert held["started"] == pytest.approx(psutil.Process(holder.pid).create_time())
    (tmp_path / NAME).write_text(json.dumps(held | {"started": held["started"] - 1000}))
    RunLock(tmp_path, 30.0).acquire()
