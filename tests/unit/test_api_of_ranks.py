"""A script under mpirun: what its other ranks may ask, when the first is a moment behind."""

import threading
import time
from dataclasses import replace

import pytest

from distxcept import api
from distxcept.cluster.status import own_status, write_status

SECOND = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


@pytest.mark.parametrize("state", ["done", "stopped", "failed"])
def test_they_wait_for_its_end(tmp_path, monkeypatch, state):
    for name, value in SECOND.items():
        monkeypatch.setenv(name, value)
    running = replace(own_status(0, 2), state="running")
    write_status(tmp_path, running)
    ended = []

    def end():
        ended.append(time.monotonic())
        write_status(tmp_path, replace(running, state=state))

    threading.Timer(0.3, end).start()
    api._wait_for_first_rank(tmp_path)
    assert ended and time.monotonic() >= ended[0]


def test_they_do_not_wait_for_ever(tmp_path, monkeypatch):
    for name, value in SECOND.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(api, "FIRST_RANK_SECONDS", 0.1)
    write_status(tmp_path, replace(own_status(0, 2), state="running"))
    api._wait_for_first_rank(tmp_path)


def test_alone_nobody_waits(tmp_path, monkeypatch):
    write_status(tmp_path, replace(own_status(0, 1), state="running"))
    monkeypatch.setattr(api.time, "sleep", lambda seconds: pytest.fail("waits"))
    api._wait_for_first_rank(tmp_path)
