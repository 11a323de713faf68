"""Host lists and host files: what is read, what is refused, how ranks are dealt."""

import pytest

from distxcept.errors import ConfigError
from distxcept.launch.hosts import (
    Host,
    deal,
    parse_hosts,
    read_hostfile,
    slurm_cores,
    slurm_hosts,
    slurm_shows_gpus,
)


def shown(hosts):
    return " ".join(map(str, hosts))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:2,b:2", "a:2 b:2"),
        ("a,b", "a:1 b:1"),
        ("gpu-1.example.org:8", "gpu-1.example.org:8"),
        ("10.0.0.1:1,10.0.0.1:3", "10.0.0.1:4"),
    ],
)
def test_host_lists(text, expected):
    assert shown(parse_hosts(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,,b",
        "a:0",
        "a:x",
        "a:-1",
        "a:99999",
        "a:2:3",
        "-oProxyCommand=x",
        "a b",
        "a\nb",
        "a;b",
        "$(x)",
        "a:²",
    ],
)
def test_refused(text):
    with pytest.raises(ConfigError):
        parse_hosts(text)


def test_host_file(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# ours\na slots=2\n\nb:3   # comment\nc\nd slots = 4 max_slots=4\n")
    assert shown(read_hostfile(str(path))) == "a:2 b:3 c:1 d:4"


@pytest.mark.parametrize(
    "text", ["", "# only\n", "a slots=0\n", "-oProxyCommand=x slots=2\n", "a b c\n", "a\x00b\n"]
)
def test_host_files_that_are_refused(tmp_path, text):
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(ConfigError):
        read_hostfile(str(path))


def test_host_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_hostfile(str(tmp_path / "missing"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_hostfile(str(tmp_path / "binary"))
    (tmp_path / "large").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(ConfigError, match="larger"):
        read_hostfile(str(tmp_path / "large"))


@pytest.mark.parametrize(("ranks", "expected"), [(1, "a:1"), (2, "a:2"), (3, "a:2 b:1"), (5, "a:2 b:3")])
def test_ranks_fill_the_hosts_in_order(ranks, expected):
    assert shown(deal([Host("a", 2), Host("b", 3)], ranks)) == expected


def test_too_few_slots():
    with pytest.raises(ConfigError, match="5 slots"):
        deal([Host("a", 2), Host("b", 3)], 6)


def test_allocation():
    environ = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": "2(x2),1"}
    assert shown(slurm_hosts(environ)) == "n1:2 n2:2 n3:1"
    assert slurm_hosts({}) == []
    assert slurm_hosts({**environ, "SLURM_TASKS_PER_NODE": "2"}) == []


@pytest.mark.parametrize(
    ("cores", "tasks", "more", "expected"),
    [
        ("64(x2)", "4(x2)", {}, 16),  # whole nodes: every rank its part
        ("64,32", "4(x2)", {}, 8),  # nodes that differ: what all ranks can have
        ("30", "4", {}, 6),  # whole cores of two threads
        ("3", "4", {}, 1),
        ("4", "4", {"SLURM_CPUS_PER_TASK": "3"}, 3),  # asked for
        ("32", "4", {"SLURM_CPUS_PER_GPU": "8"}, None),  # srun takes it over
        ("", "4", {}, None),
        ("64(x2)", "4", {}, None),
    ],
)
def test_cores_of_a_rank(cores, tasks, more, expected):
    environ = {"SLURM_JOB_CPUS_PER_NODE": cores, "SLURM_TASKS_PER_NODE": tasks, **more}
    assert slurm_cores(environ) == expected
    assert slurm_cores({}) is None


def test_cards_are_shown_to_all_ranks_unless_they_were_bound_by_choice():
    assert slurm_shows_gpus({"SLURM_GPUS_ON_NODE": "4", "SLURM_GPUS_PER_TASK": "1"})
    assert not slurm_shows_gpus({"SLURM_GPUS_ON_NODE": "4", "SLURM_GPU_BIND": "single:1"})
    assert not slurm_shows_gpus({})
