"""Status files: whole or absent, and the failure that came first is the one that counts."""

import json
import threading
from dataclasses import replace

import pytest

from distxcept.cluster.status import (
    RankStatus,
    failed,
    forget_statuses,
    own_status,
    read_status,
    read_statuses,
    root_cause,
    status_path,
    write_status,
)


def status(rank: int, **changes) -> RankStatus:
    return RankStatus(
        **{"rank": rank, "host": "h", "pid": 10 + rank, "state": "running", "time": 1.0} | changes
    )


def test_what_is_written_comes_back(tmp_path):
    mine = failed(replace(own_status(3, 4), update=7), RuntimeError("no disk\nsecond line"), 1)
    write_status(tmp_path, mine)
    assert read_status(tmp_path, 3) == mine
    assert json.loads((tmp_path / "status" / "rank-3.json").read_text()) == {
        "rank": 3, "host": mine.host, "pid": mine.pid, "state": "failed", "update": 7, "time": mine.time,
        "exit_code": 1, "kind": "RuntimeError", "message": "no disk", "lost": None, "ranks": 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"rank": 1}', '{"rank":"x","host":"h","pid":1,"state":"running","time":1}',
             '{"rank":1,"host":"h","pid":1,"state":"dancing","time":1}'],
)  # fmt: skip
def test_what_cannot_be_read_is_no_status(tmp_path, text):
    write_status(tmp_path, status(0))
    status_path(tmp_path, 1).write_text(text)
    (tmp_path / "status" / "rank-.json").write_text("{}")
    (tmp_path / "status" / ".rank-2.json.9.writing").write_text("{}")
    assert list(read_statuses(tmp_path)) == [0]


def test_fields_of_a_newer_version_are_ignored(tmp_path):
    write_status(tmp_path, status(0))
    path = status_path(tmp_path, 0)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mood": "good"}))
    assert read_status(tmp_path, 0) == status(0)


def test_no_folder(tmp_path):
    assert read_statuses(tmp_path / "none") == {}


def test_leftovers_of_a_larger_job_go(tmp_path):
    for rank in range(4):
        write_status(tmp_path, status(rank))
    forget_statuses(tmp_path, 2)
    assert list(read_statuses(tmp_path)) == [0, 1]


def test_a_reader_never_sees_half_a_file(tmp_path):
    write_status(tmp_path, status(0))
    stop = threading.Event()

    def write() -> None:
        update = 0
        while not stop.is_set():
            update += 1
            write_status(tmp_path, status(0, update=update, message="x" * (update % 5000)))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [read_status(tmp_path, 0) for _ in range(2000)]
    finally:
        stop.set()
        writer.join()
    assert all(one is not None for one in seen)
    assert len({one.update for one in seen}) > 1


@pytest.mark.parametrize(
    ("statuses", "first"),
    [
        ([], None),
        ([status(0), status(1, state="stopped"), status(2, state="done")], None),
        (
            [
                status(0, state="failed", kind="PeerLostError", time=1.0),
                status(1, state="failed", kind="DataError", time=5.0),
                status(2, state="failed", kind="ValueError", time=4.0),
            ],
            2,
        ),
        (
            [
                status(0, state="failed", kind="PeerLostError", time=3.0),
                status(1, state="failed", kind="PeerLostError", time=2.0),
            ],
            1,
        ),
    ],
)
def test_root_cause(statuses, first):
    found = root_cause(statuses)
    assert (found.rank if found else None) == first
