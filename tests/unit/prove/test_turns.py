"""Contestants take turns: who runs when, what is counted, and what becomes of one that fails."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from distxcept.prove.race import table, turns
from distxcept.prove.race.serve import UPDATES_AT_START
from distxcept.prove.race.setting import Setting
from distxcept.prove.race.turns import Contestant, Racing, Spread, take_turns

ROOT = str(Path(__file__).parents[3])
STUB = str(Path(__file__).with_name("stub.py"))
SETTING = Setting(71, 4)


def contestant(name: str, *arguments: str) -> Contestant:
    return Contestant(name, (sys.executable, STUB, *arguments), {"PYTHONPATH": ROOT}, about=f"about {name}")


def race(*contestants: Contestant, rounds: int = 3) -> list[turns.Result]:
    return take_turns(contestants, lambda one: SETTING, rounds=rounds, turn_seconds=1.0)


def test_speeds_and_ratios():
    ours, theirs = race(contestant("ours", "0.5"), contestant("theirs", "0.25"))
    assert [turn.steps for turn in ours.turns] == [2, 2, 2]
    assert [turn.steps for turn in theirs.turns] == [4, 4, 4]
    assert ours.speed == Spread(8.0, 8.0, 8.0) and theirs.ratio == Spread(2.0, 2.0, 2.0)
    assert ours.peak_bytes > 0
    assert [turn.facts["done"] for turn in ours.turns] == [5, 7, 9], "two to warm up, one to time, then turns"
    assert ours.turns[0].facts["done"] == UPDATES_AT_START + ours.turns[0].steps


def test_nobody_runs_out_of_turn():
    process = Racing(contestant("ours", "0.1"), SETTING)
    try:
        process.ready()
        system = psutil.Process(process._process.pid)
        assert system.status() == psutil.STATUS_STOPPED
        assert process.run(3, images=4).images == 12
        assert system.status() == psutil.STATUS_STOPPED
    finally:
        process.stop()
    assert not system.is_running()


@pytest.mark.parametrize(
    ("how", "reason"), [("fail_at_start", "no such library"), ("fail_on_turn", "no more memory")]
)
def test_one_that_fails_is_left_out_and_says_why(how, reason):
    ours, theirs = race(contestant("ours", "0.5"), contestant("theirs", "0.5", how))
    assert len(ours.turns) == 3 and not ours.failure
    assert reason in theirs.failure and theirs.turns == []
    assert f"| theirs | – | – | – | {theirs.failure} |" in table.markdown([ours, theirs], "x")


def test_without_the_reference_nothing_is_compared():
    ours, theirs = race(contestant("ours", "0.5", "fail_at_start"), contestant("theirs", "0.5"))
    assert ours.failure and not theirs.turns and not theirs.failure


def test_groups_where_memory_is_short(monkeypatch):
    """Each with the reference, which then has a turn in every round of every group."""
    memory = type("Memory", (), {"available": 1})
    monkeypatch.setattr(turns.psutil, "virtual_memory", lambda: memory)
    ours, one, two = race(*(contestant(name, "0.5") for name in ("ours", "one", "two")), rounds=2)
    assert [len(result.turns) for result in (ours, one, two)] == [4, 2, 2]
    assert len(one.ratios) == len(two.ratios) == 2


def test_a_variable_is_set_or_removed():
    found = Contestant("x", (), {"A": "1", "B": None}).environment({"A": "0", "B": "0", "C": "0"})
    assert found == {"A": "1", "C": "0"}


def test_the_table():
    ours, theirs = race(contestant("ours", "0.5"), contestant("theirs", "0.25"), rounds=1)
    text = table.markdown([ours, theirs], str(SETTING))
    assert "### 71 px, batch 4" in text and "| × ours |" in text
    assert "| theirs | 16.00 (16.00 … 16.00) | 2.00 (2.00 … 2.00) |" in text
    found = table.as_json([ours, theirs], SETTING)
    assert found["contestants"][1]["ratio"] == {"median": 2.0, "low": 2.0, "high": 2.0}
    assert found["contestants"][0]["rounds"][0]["steps"] == 2


def test_nobody_outlives_the_driver(tmp_path):
    """Not even one that is stopped: SIGKILL of the driver reaches it all the same."""
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_turns import Racing, SETTING, contestant\n"
        "racing = Racing(contestant('ours', '0.1'), SETTING); racing.ready()\n"
        "print(racing._process.pid, flush=True); sys.stdin.read()\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    assert driver.stdin is not None and driver.stdout is not None
    child = psutil.Process(int(driver.stdout.readline()))
    assert child.status() == psutil.STATUS_STOPPED
    driver.kill()
    driver.wait()
    child.wait(timeout=10)
