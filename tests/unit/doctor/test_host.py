"""The machine's limits."""

from dataclasses import replace
from pathlib import Path

import pytest

from distxcept.doctor.host import HostFacts, check_host, check_threads, read_cgroup_limit, read_host

GIB = 2**30
GOOD = HostFacts(
    open_files_limit=4096,
    open_files_hard_limit=65536,
    disk_path="/runs",
    disk_free_bytes=100 * GIB,
    shared_memory_bytes=8 * GIB,
    swap_total_bytes=8 * GIB,
    swap_used_bytes=0,
    memory_total_bytes=64 * GIB,
    memory_available_bytes=60 * GIB,
    cgroup_memory_limit_bytes=None,
    cores=8,
    usable_cores=8,
)


def test_a_good_machine() -> None:
    assert [finding.status for finding in check_host(GOOD)] == ["ok"] * 6
    assert all(finding.remedy is None for finding in check_host(GOOD))


@pytest.mark.parametrize(
    ("changes", "status", "part"),
    [
        ({"open_files_limit": 256}, "warning", "up to 256 open files"),
        ({"disk_free_bytes": 5 * GIB}, "warning", "5.0 GiB free on the disk of /runs"),
        ({"disk_free_bytes": GIB // 2}, "problem", "0.5 GiB free"),
        ({"shared_memory_bytes": 64 * 2**20}, "warning", "/dev/shm has 0.1 GiB"),
        ({"shared_memory_bytes": None}, "warning", "there is no /dev/shm"),
        ({"swap_used_bytes": 7 * GIB}, "warning", "7.0 GiB of 8.0 GiB swap in use"),
        ({"memory_available_bytes": 2 * GIB}, "warning", "2.0 GiB of 64.0 GiB memory available"),
        ({"memory_available_bytes": GIB // 2}, "problem", "memory available"),
        ({"cgroup_memory_limit_bytes": 2 * GIB}, "warning", "limited to 2.0 GiB by a cgroup"),
        ({"usable_cores": 1}, "warning", "1 of 8 cores usable"),
    ],
)
def test_each_shortage(changes: dict[str, int], status: str, part: str) -> None:
    worse = [finding for finding in check_host(replace(GOOD, **changes)) if finding.status != "ok"]
    (finding,) = worse
    assert finding.status == status and part in finding.text and finding.remedy


def test_unlimited_and_absent_things_are_fine() -> None:
    facts = replace(GOOD, open_files_limit=-1, swap_total_bytes=0, cores=1, usable_cores=1)
    assert {finding.status for finding in check_host(facts)} == {"ok"}


@pytest.mark.parametrize(
    ("value", "expected"), [(None, 0), ("0", 0), ("8", 0), ("2", 1), ("many", 0), ("16", 0)]
)
def test_threads(value: str | None, expected: int) -> None:
    environ = {} if value is None else {"TF_NUM_INTRAOP_THREADS": value}
    assert len(check_threads(environ, usable_cores=8)) == expected


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_tightest_limit_of_cgroup_v2_counts(tmp_path: Path) -> None:
    write(tmp_path / "member", "0::/slurm/job_1/step_0\n")
    write(tmp_path / "fs/slurm/job_1/step_0/memory.max", "max\n")
    write(tmp_path / "fs/slurm/job_1/memory.max", f"{8 * GIB}\n")
    write(tmp_path / "fs/slurm/memory.max", f"{16 * GIB}\n")
    assert read_cgroup_limit(tmp_path / "member", tmp_path / "fs") == 8 * GIB


def test_cgroup_v1_and_its_way_to_say_no_limit(tmp_path: Path) -> None:
    write(tmp_path / "member", "4:memory:/docker/abc\n1:cpu:/\n0::/\n")
    write(tmp_path / "fs/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n")
    assert read_cgroup_limit(tmp_path / "member", tmp_path / "fs") is None
    write(tmp_path / "fs/memory/memory.limit_in_bytes", f"{4 * GIB}\n")
    assert read_cgroup_limit(tmp_path / "member", tmp_path / "fs") == 4 * GIB


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    assert read_cgroup_limit(tmp_path / "nothing", tmp_path) is None


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    facts = read_host(tmp_path)
    assert facts.memory_total_bytes > facts.memory_available_bytes > 0
    assert facts.cores >= facts.usable_cores >= 1
    assert facts.disk_free_bytes > 0
