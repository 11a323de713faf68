"""Where the kernel counts its memory kills, on both generations of control groups."""

import pytest

from distxcept.launch.oom_kills import count_oom_kills, counter_files, own_counter_files

V1 = "9:name=systemd:/\n4:memory:/session/7\n0::/\n"
V2 = "0::/user.slice/session-3.scope\n"
SLURM = "0::/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0\n"


def make(root, *files):
    for name, count in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"low 0\noom 4\noom_kill {count}\noom_group_kill 0\n")


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        (V1, [("memory/session/7/memory.oom_control", 3), ("memory/session/memory.oom_control", 9)], 3),
        (V2, [("user.slice/session-3.scope/memory.events", 2), ("user.slice/memory.events", 9)], 2),
        (
            SLURM,  # the ranks are in step_0, so only the job's level has seen it
            [
                ("system.slice/slurmstepd.scope/job_12/step_batch/user/task_0/memory.events", 0),
                ("system.slice/slurmstepd.scope/job_12/memory.events", 5),
                ("system.slice/memory.events", 9),
            ],
            5,
        ),
        ("", [], 1),
        (V2, [], 1),
    ],
)
def test_counts(tmp_path, text, files, expected):
    make(tmp_path, *files, ("proc/vmstat", 1))
    assert count_oom_kills(counter_files(text, tmp_path, tmp_path / "proc")) == expected


def test_a_kernel_that_does_not_tell(tmp_path):
    (tmp_path / "vmstat").write_text("nr_free_pages 1\n")
    assert count_oom_kills(counter_files("", tmp_path, tmp_path)) == 0
    assert count_oom_kills([tmp_path / "missing"]) == 0


def test_this_machine():
    assert count_oom_kills(own_counter_files()) >= 0
