"""What a container leaves of the machine."""

import os

import pytest

from distxcept.data.host import usable_cores


@pytest.mark.parametrize(
    ("cpu_max", "cores"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("150000 100000", 2),  # a core and a half: two may run, for three quarters of the time
        ("10000 100000", 1),
        ("6400000 100000", 8),
        ("strange", 8),
        (None, 8),
    ],
)
def test_cores_within_the_quota_of_a_container(tmp_path, monkeypatch, cpu_max, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    if cpu_max is not None:
        (tmp_path / "cpu.max").write_text(cpu_max + "\n")
    assert usable_cores(tmp_path) == cores
