"""Supervision of one process, with real processes and signals; the training is played by programs/victim.py."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from launchers import PROGRAMS, REPOSITORY, are_gone, listened_to

PATIENCE_SECONDS = 60.0


def start(folder: Path, *steps: str, restarts: int = 3, grace: float = 30) -> subprocess.Popen[str]:
    victim = [sys.executable, str(PROGRAMS / "victim.py"), str(folder), *steps]
    supervise = [sys.executable, str(PROGRAMS / "supervise.py"), str(folder), str(restarts), str(grace)]
    return listened_to([*supervise, *victim])


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, stdout, stderr


def attempts(folder: Path) -> list[dict]:
    path = folder / "attempts"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for_attempt(folder: Path) -> list[int]:
    """The processes of the first attempt, once it is under way."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not attempts(folder):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return attempts(folder)[0]["pids"]


@pytest.mark.parametrize(
    ("steps", "code", "number"),
    [
        (["0"], 0, 1),
        (["SIGKILL", "6", "SIGSEGV", "0"], 0, 4),
        (["SIGKILL", "3"], 3, 2),
        (["6"], 6, 4),
        (["2"], 2, 1),
        (["75"], 75, 1),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_attempts_and_exit_code(tmp_path, steps, code, number):
    got, stdout, stderr = finish(start(tmp_path, *steps))
    assert (got, len(attempts(tmp_path))) == (code, number), stderr
    # all output is on the terminal and in the log of the rank
    log = (tmp_path / "logs" / "rank-0.log").read_text()
    assert stdout.splitlines() == [line for line in log.splitlines() if line.startswith("out")]
    assert [line for line in stderr.splitlines() if line.startswith("err")] == [
        line for line in log.splitlines() if line.startswith("err")
    ]
    assert len(stdout.splitlines()) == number
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["attempt"] for event in events] == list(range(1, number + 1))
    assert [event["action"] for event in events[:-1]] == ["restart"] * (number - 1)


@pytest.mark.parametrize("step", ["bad_alloc", "stubborn"])
def test_a_process_that_dies_for_memory_gets_smaller_plans_until_none_is_left(tmp_path, step):
    """Even if it does not obey: `stubborn` takes the largest plan every time."""
    code, _, stderr = finish(start(tmp_path, step, restarts=1))
    assert code == 4, stderr
    assert "going on with micro batch 8\n" in stderr
    assert "no smaller memory plan" in stderr
    plan = json.loads((tmp_path / "memory_plan.json").read_text())
    assert (plan["micro"], plan["remat"]) == (4, True)
    tried = [(16, False), (8, False), (4, False)]
    assert [(failed["micro"], failed["remat"]) for failed in plan["failed"]] == tried
    assert len(attempts(tmp_path)) == len(tried) + 1


def test_a_smaller_plan_that_fits_ends_well(tmp_path):
    code, _, stderr = finish(start(tmp_path, "bad_alloc", "bad_alloc", "0"))
    assert code == 0, stderr
    assert json.loads((tmp_path / "memory_plan.json").read_text())["micro"] == 4


def test_a_smaller_plan_that_the_training_left_is_taken_as_it_is(tmp_path):
    """Not halved again: the plan that it names has never run. No restart of the one is used up by it."""
    code, _, stderr = finish(start(tmp_path, "leaves_plan", "leaves_plan", "0", restarts=1))
    assert code == 0, stderr
    plan = json.loads((tmp_path / "memory_plan.json").read_text())
    assert plan["micro"] == 4
    assert [failed["micro"] for failed in plan["failed"]] == [16, 8]
    assert "left a smaller plan; going on with micro batch 8\n" in stderr


def test_unexplained_deaths_without_progress_lead_to_a_smaller_plan(tmp_path):
    code, _, stderr = finish(start(tmp_path, "SIGSEGV", "SIGSEGV", "0"))
    assert code == 0, stderr
    assert json.loads((tmp_path / "memory_plan.json").read_text())["micro"] == 8


def test_what_a_rank_said_late_is_no_progress(tmp_path):
    """The first attempt saved update 1 and died before it said so; the second goes on from there and dies at once."""
    code, _, stderr = finish(start(tmp_path, "late_news", "late_news", "0"))
    assert code == 0, stderr
    assert json.loads((tmp_path / "memory_plan.json").read_text())["micro"] == 8


def test_a_restart_goes_on_from_a_snapshot_of_this_job_only(tmp_path):
    code, _, stderr = finish(start(tmp_path, "SIGKILL", "snapshot", "0"))
    assert code == 0, stderr
    assert [attempt["resume"] for attempt in attempts(tmp_path)] == [False, False, True]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_request_to_stop_reaches_the_process_as_sigusr1(tmp_path, number):
    process = start(tmp_path, "listens")
    pids = wait_for_attempt(tmp_path)
    process.send_signal(number)
    code, _, stderr = finish(process)
    assert code == 75, stderr
    assert are_gone(pids), "it left a process behind"


def test_a_process_that_does_not_obey_is_killed_after_the_grace(tmp_path):
    process = start(tmp_path, "deaf", grace=0.5)
    pids = wait_for_attempt(tmp_path)
    process.send_signal(signal.SIGTERM)
    code, _, stderr = finish(process)
    assert code == 143, stderr
    assert are_gone(pids)


def test_a_second_request_does_not_wait(tmp_path):
    process = start(tmp_path, "deaf", grace=1000)
    pids = wait_for_attempt(tmp_path)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)  # two signals of one kind that come together are one
    process.send_signal(signal.SIGINT)
    code, _, stderr = finish(process)
    assert code == 130, stderr
    assert are_gone(pids)


def test_a_killed_supervisor_takes_its_process_along(tmp_path):
    process = start(tmp_path, "deaf")
    victim, helper = wait_for_attempt(tmp_path)
    process.kill()
    finish(process)
    assert are_gone([victim])
    psutil.Process(helper).kill()  # a helper in a session of its own is the business of whoever started it


def test_a_program_that_does_not_exist(tmp_path):
    process = subprocess.run(
        [sys.executable, str(PROGRAMS / "supervise.py"), str(tmp_path), "3", "1", "/no/such/program"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert "/no/such/program cannot be started" in process.stderr
