"""The sbatch file of a run: what stands in it, what is refused, and that bash reads back what was meant."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from distxcept.errors import ConfigError
from distxcept.launch.follow import parse_job
from distxcept.launch.partitions import (
    NodeGroup,
    Request,
    check_request,
    fair_cores,
    parse_minutes,
    parse_sinfo,
)
from distxcept.launch.sbatch import Job, read_sweep, render

SLURM_FILES = Path(__file__).parents[3] / "slurm"
SHOW = (sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))")


def job(**changes):
    return Job(**{"name": "x", "folder": "/runs/x", "launch": SHOW, "config": "/c.yaml", **changes})


def directives(text):
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


def test_head():
    text = render(
        job(
            nodes=2,
            gpus_per_node=4,
            ranks_per_node=4,
            cpus_per_rank=8,
            time="1-12:00:00",
            partition="gpu",
            account="me",
            qos="long",
            memory="64G",
            dependency="afterok:12,singleton",
            options=("--constraint=a100|h100", "--exclusive"),
        )
    )
    assert text.startswith("#!/bin/bash\n#SBATCH ")
    assert directives(text) == [
        "--job-name=x",
        "--nodes=2",
        "--ntasks-per-node=4",
        "--gpus-per-node=4",
        "--cpus-per-task=8",
        "--mem=64G",
        "--time=1-12:00:00",
        "--partition=gpu",
        "--account=me",
        "--qos=long",
        "--dependency=afterok:12,singleton",
        "--output=/runs/x/slurm-%j.out",
        "--open-mode=append",
        "--requeue",
        "--signal=B:USR1@120",
        "--constraint=a100|h100",
        "--exclusive",
    ]


@pytest.mark.parametrize(("time", "seconds"), [("1", 15), ("00:04:00", 60), ("8:00:00", 120)])
def test_the_warning_comes_in_time(time, seconds):
    assert f"--signal=B:USR1@{seconds}" in directives(render(job(time=time)))


HOSTILE = [
    "a b",
    "a;touch x",
    "$(touch x)",
    "`touch x`",
    "'",
    '"',
    "\\",
    "*",
    "~",
    "-oProxyCommand=x",
    "&",
    "|",
    "#",
    "%j",
    "é",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_bash_hands_on_exactly_the_arguments(text, tmp_path):
    script = render(job(config=f"/{text}", overrides=(f"data.train.path={text}",), launch=(*SHOW, text)))
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, cwd=tmp_path)
    assert json.loads(done.stdout) == [text, "--", f"/{text}", f"data.train.path={text}"], done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_every_task_of_an_array_gets_its_own(text, tmp_path):
    script = render(job(overrides=("run.name=x", f"a={text}"), sweep=(("b=1",), (f"b={text}", "run.name=z"))))
    assert "--array=1-2" in directives(script)
    assert "--output=/runs/x/slurm-%A_%a.out" in directives(script)
    for task, expected in (
        ("1", ["run.name=x-1", f"a={text}", "b=1"]),
        ("2", ["run.name=x-2", f"a={text}", f"b={text}", "run.name=z"]),
    ):
        done = subprocess.run(
            ["bash"],
            input=script,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={"SLURM_ARRAY_TASK_ID": task},
        )
        assert json.loads(done.stdout) == ["--", "/c.yaml", *expected], done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["\n", "\n#SBATCH --uid=0", "a\nb", "\r", "\x00", "\x1b[2J"])
@pytest.mark.parametrize("place", ["config", "overrides", "launch", "sweep"])
def test_control_characters_are_refused(text, place):
    value = {"config": text, "overrides": (text,), "launch": (text,), "sweep": ((text,),)}[place]
    with pytest.raises(ConfigError, match="line break"):
        render(job(**{place: value}))


@pytest.mark.parametrize("text", [*HOSTILE, "a\nb", "", "a\n#SBATCH --uid=0"])
@pytest.mark.parametrize(
    "place", ["name", "partition", "account", "qos", "memory", "time", "dependency", "options"]
)
def test_words_that_cannot_stand_in_a_directive(text, place):
    with pytest.raises(ConfigError):
        render(job(**{place: (text,) if place == "options" else text}))


@pytest.mark.parametrize("folder", ["/runs/a b", "/runs/a\nb", "/runs/%j", "/runs/$(x)", "/runs/'", ""])
def test_folders_that_cannot_stand_in_a_directive(folder):
    with pytest.raises(ConfigError, match=r"run\.dir"):
        render(job(folder=folder))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\n\n# note\n b=2  c=3 \n", (("a=1",), ("b=2", "c=3"))),
        ("a=$(x);y\n", (("a=$(x);y",),)),
    ],
)
def test_sweeps(text, expected):
    assert read_sweep(text) == expected


@pytest.mark.parametrize("text", ["", "# only\n", "a\n", "--max-restarts=9\n", "-o=x\n"])
def test_sweeps_that_are_refused(text):
    with pytest.raises(ConfigError, match="--array"):
        read_sweep(text)


# -- partitions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90), ("90:30", 90.5), ("1:30:00", 90), ("2-12", 3600), ("2-12:30", 3630), ("2-12:30:30", 3630.5),
        ("infinite", None), ("", None), ("-5", None), ("1:2:3:4", None), ("1 ", None), ("٣", None),
    ],
)  # fmt: skip
def test_times(text, minutes):
    assert parse_minutes(text) == minutes


SINFO = """\
gpu|up|8|64|gpu:a100:4(S:0-1)|1-00:00:00
gpu|up|2|128+|gpu:h100:8,shard:16|1-00:00:00
cpu|up|20|32|(null)|infinite
old|down|4|16|gpu:2|infinite
nonsense
"""
GROUPS = parse_sinfo(SINFO)


def test_sinfo():
    assert parse_sinfo(SINFO) == [
        NodeGroup("gpu", True, 8, 64, 4, 1440),
        NodeGroup("gpu", True, 2, 128, 8, 1440),
        NodeGroup("cpu", True, 20, 32, 0, None),
        NodeGroup("old", False, 4, 16, 2, None),
    ]


@pytest.mark.parametrize(
    ("partition", "gpus", "ranks", "cores"),
    [
        ("gpu", 4, 4, 16),  # of 64 cores with 4 GPUs and 128 with 8: a GPU has 16
        ("gpu", 1, 1, 16),
        ("gpu", 8, 8, 16),
        ("gpu", 4, 2, 32),
        ("cpu", 0, 1, 32),
        ("cpu", 0, 5, 6),
        (None, 4, 4, 16),
        ("cpu", 0, 64, 1),
        ("nowhere", 1, 1, 1),  # check_request tells
    ],
)
def test_cores_of_a_rank_are_its_part_of_the_node(partition, gpus, ranks, cores):
    assert fair_cores(GROUPS, partition=partition, gpus_per_node=gpus, ranks_per_node=ranks) == cores


def test_cores_that_nobody_knows_are_left_to_the_cluster():
    assert not any("cpus-per-task" in line for line in directives(render(job())))


@pytest.mark.parametrize("path", sorted(SLURM_FILES.glob("*.sbatch")), ids=lambda path: path.name)
def test_shipped_files_starve_no_gpu_and_hide_no_card(path):
    asked = " ".join(directives(path.read_text()))
    assert "--cpus-per-task=1" not in asked
    assert "--gpus-per-task" not in asked and "--gpu-bind" not in asked


def request(**changes):
    return Request(**{"nodes": 1, "gpus_per_node": 0, "cpus_per_node": 1, "minutes": 60, **changes})


@pytest.mark.parametrize(
    "wanted",
    [
        request(),
        request(nodes=10, gpus_per_node=4, partition="gpu"),
        request(nodes=2, gpus_per_node=8, cpus_per_node=128),
        request(nodes=20, minutes=1e6, partition="cpu"),
    ],
)
def test_requests_that_can_run(wanted):
    check_request(wanted, GROUPS)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (request(partition="gpus"), "no partition gpus; there are cpu, gpu, old"),
        (request(partition="old"), "not up"),
        (request(gpus_per_node=16), "more than 8 GPUs"),
        (request(gpus_per_node=1, partition="cpu"), "more than 0 GPUs"),
        (request(cpus_per_node=64, partition="cpu"), "more than 32"),
        (request(nodes=3, gpus_per_node=8), "only 2 nodes"),
        (request(minutes=2000, partition="gpu"), "allows 1440"),
    ],
)
def test_requests_that_can_never_run(wanted, message):
    with pytest.raises(ConfigError, match=message):
        check_request(wanted, GROUPS)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("JobId=1 JobState=RUNNING ExitCode=0:0\n", ("RUNNING", 0)),
        ("JobId=1 JobState=FAILED ExitCode=3:0\n", ("FAILED", 3)),
        ("JobId=1 JobState=FAILED ExitCode=0:9\n", ("FAILED", 137)),
        ("JobId=1 JobState=COMPLETED ExitCode=0:0\nJobId=2 JobState=PENDING ExitCode=0:0\n", ("PENDING", 0)),
        ("JobId=1 JobState=COMPLETED ExitCode=0:0\nJobId=2 JobState=FAILED ExitCode=2:0\n", ("FAILED", 2)),
        ("", ("UNKNOWN", 1)),
    ],
)
def test_state_of_a_job(shown, expected):
    assert parse_job(shown) == expected
