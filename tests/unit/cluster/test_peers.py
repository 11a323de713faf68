"""Who counts as lost, by what is seen of them."""

import os
import socket
import subprocess

import pytest

from distxcept.cluster.peers import Loss, Peer, PeerWatch
from distxcept.cluster.status import RankStatus, write_status

TIMEOUT = 30.0


def status(**changes) -> RankStatus:
    return RankStatus(
        **{"rank": 1, "host": "far", "pid": 7, "state": "running", "time": 100.0, "update": 5} | changes
    )


@pytest.fixture
def far(tmp_path):
    """A watch over rank 1 on another host."""
    return PeerWatch(tmp_path, [Peer(1, "far", 7)], TIMEOUT)


def looks(watch: PeerWatch, *times: float, **options) -> list[bool]:
    return [watch.look(now, **options) is not None for now in times]


def test_a_status_that_stays_the_same_is_a_loss_after_the_timeout(tmp_path, far):
    write_status(tmp_path, status())
    assert looks(far, 0, 10, 20, 30) == [False] * 4
    loss = far.look(31)
    assert loss.rank == 1 and not loss.told
    assert (
        "rank 1 on far is lost: no sign of life for 30 s; its last known update was 5; its log is"
        in loss.message
    )
    assert loss.message.endswith("logs/rank-1.log")


def test_a_status_that_changes_is_life_however_long_the_update_takes(tmp_path, far):
    for second in range(0, 1000, 5):
        write_status(tmp_path, status(time=100.0 + second))
        assert far.look(second) is None


def test_clocks_are_not_compared(tmp_path, far):
    for second in range(0, 100, 5):
        write_status(tmp_path, status(time=-1e9 - second))  # runs backwards, even
        assert far.look(second) is None


@pytest.mark.parametrize("text", [None, "{", "another process"])
def test_what_was_never_seen_cannot_be_missed(tmp_path, far, text):
    """The folder may not be shared, or the file be that of an earlier job."""
    write_status(tmp_path, status(pid=8))
    if text is None:
        (tmp_path / "status" / "rank-1.json").unlink()
    elif text == "{":
        (tmp_path / "status" / "rank-1.json").write_text(text)
    assert looks(far, *range(0, 100, 5)) == [False] * 20


def test_while_our_own_status_cannot_be_written_nobody_is_missed(tmp_path, far):
    """The disk is full for all of them."""
    write_status(tmp_path, status())
    assert looks(far, *range(0, 100, 5), own_status_written=False) == [False] * 20


def test_after_a_pause_of_our_own_everybody_gets_a_new_chance(tmp_path, far):
    write_status(tmp_path, status())
    assert looks(far, 0, 5, 500, 510, 520, 529) == [False] * 6
    assert far.look(531) is not None


@pytest.mark.parametrize(
    ("state", "lost"), [("done", False), ("stopped", False), ("failed", True), ("starting", False)]
)
def test_states(tmp_path, far, state, lost):
    write_status(tmp_path, status(state=state, kind="ValueError", message="why"))
    assert (far.look(0) is not None) == lost


def test_a_failure_is_told_with_its_cause(tmp_path):
    watch = PeerWatch(tmp_path, [Peer(1, "far", 7), Peer(2, "far", 8)], TIMEOUT)
    write_status(tmp_path, status(state="failed", kind="ValueError", message="why"))
    loss = watch.look(0)
    assert (
        loss.told and "rank 1 on far failed with ValueError: why; its last known update was 5" in loss.message
    )
    # What another rank says of a lost peer is passed on as it is.
    report = status(state="failed", kind="PeerLostError", message="rank 9 is lost", lost=9, time=2.0)
    write_status(tmp_path, report)
    assert watch.look(1) != Loss(9, "rank 9 is lost", told=False)  # files are not read all the time
    watch.forget()
    assert watch.look(1) == Loss(9, "rank 9 is lost", told=False)


@pytest.fixture
def near():
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def test_a_process_of_this_host_is_missed_at_once(tmp_path, near):
    watch = PeerWatch(tmp_path, [Peer(1, socket.gethostname(), near.pid)], TIMEOUT)
    assert watch.look(0) is None
    assert watch.first_witness(None) == 1
    near.kill()
    while near.poll() is None and watch.look(0.1) is None:
        pass
    assert "its process is gone; no update of it is known" in watch.look(0.1).message
    assert watch.first_witness(None) is None


def test_a_process_that_said_goodbye_is_not_missed(tmp_path, near):
    host = socket.gethostname()
    watch = PeerWatch(tmp_path, [Peer(1, host, near.pid)], TIMEOUT)
    assert watch.look(0) is None
    write_status(tmp_path, status(host=host, pid=near.pid, state="done"))
    near.kill()
    near.wait()
    assert watch.look(1) is None


def test_a_pid_that_was_never_seen_here_is_not_missed(tmp_path):
    """Containers may share a host name and not the processes."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    watch = PeerWatch(tmp_path, [Peer(1, socket.gethostname(), gone.pid)], TIMEOUT)
    assert looks(watch, 0, 5, 10) == [False] * 3
    assert os.getpid() != gone.pid


@pytest.mark.parametrize(
    ("statuses", "lost", "witness"),
    [
        ({1: {}, 2: {}}, None, 1),
        ({1: {}, 2: {}}, 1, 2),
        ({1: {"state": "failed", "kind": "ValueError"}, 2: {}}, None, 2),
        ({1: {"state": "failed", "kind": "PeerLostError"}, 2: {}}, 2, 1),
        ({1: {"state": "done"}, 2: {"state": "stopped"}}, None, None),
    ],
)
def test_who_tells(tmp_path, statuses, lost, witness):
    for rank, changes in statuses.items():
        write_status(tmp_path, status(rank=rank, **changes))
    watch = PeerWatch(tmp_path, [Peer(rank, "far", 7) for rank in statuses], TIMEOUT)
    assert watch.first_witness(lost) == witness
