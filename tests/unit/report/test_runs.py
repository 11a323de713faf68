import json
import os
import subprocess
import sys

import pytest
from run_folders import CONFIG, STARTED, make_run, started, train_record, validation_record

from distxcept.cli.main import main
from distxcept.errors import ConfigError
from distxcept.report.plain_text import plain_line
from distxcept.report.runs import Run, find_runs, flatten, open_run, spans
from distxcept.report.wording import metric_text, show_age, show_duration

DEAD = subprocess.Popen([sys.executable, "-c", ""])
DEAD.wait()
STOPPED = [started(), {"kind": "saved", "time": STARTED + 5, "message": "", "update": 9}]


@pytest.mark.parametrize(
    ("made", "state"),
    [
        ({}, "done"),
        ({"status": None}, "done"),
        ({"status": "running"}, "running"),
        ({"status": "running", "pid": DEAD.pid}, "lost"),
        ({"status": "running", "host": "elsewhere"}, "running"),
        ({"status": "running", "host": "elsewhere", "time": 1.0}, "lost"),
        ({"status": "stopped", "events": STOPPED}, "stopped"),
        ({"status": "failed", "message": "broken", "events": STOPPED}, "failed"),
        ({"status": None, "events": STOPPED}, "lost"),
        ({"status": None, "events": [], "metrics": []}, "new"),
        # Ended once, and now going on for longer.
        (
            {"status": "running", "events": [started(), {"kind": "ended", "time": 1.0}, started(20)]},
            "running",
        ),
    ],
)
def test_state(tmp_path, made, state):
    assert Run(make_run(tmp_path / "run", **made)).state() == state


@pytest.mark.parametrize(
    ("metric", "update", "value"),
    [("validation_accuracy", 20, 0.75), ("validation_loss", 10, 0.2), (None, None, None)],
)
def test_best_by_the_metric_of_the_run(tmp_path, metric, update, value):
    metrics = [
        train_record(1),
        validation_record(10, 0.5, loss=0.2),
        validation_record(20, 0.75, loss=None),
        validation_record(30, 0.6, loss=0.4),
    ]
    config = {**CONFIG, "checkpoint": {"best_metric": metric}}
    run = Run(make_run(tmp_path / "run", metrics=metrics, config=config))
    assert (run.best_value, (run.best or {}).get("update")) == (value, update)


def test_torn_lines_are_left_out(tmp_path):
    folder = make_run(tmp_path / "run", updates=2)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "upda\n[1]\n\n' + json.dumps(train_record(3)) + "\n")
    assert [entry["update"] for entry in Run(folder).train] == [1, 2, 3]


def test_time_between_processes_does_not_count():
    events = [
        started(at=100.0), {"kind": "saved", "time": 130.0}, {"kind": "x"},
        started(at=500.0), {"kind": "ended", "time": 510.0},
    ]  # fmt: skip
    assert spans(events) == [(100.0, 130.0), (500.0, 510.0)]


def test_a_folder_that_held_another_run_before(tmp_path):
    events = [
        started(at=100.0), {"kind": "ended", "time": 130.0},
        started(at=500.0, resume="never"), {"kind": "saved", "time": 505.0},
        started(at=600.0, resume="auto"), {"kind": "ended", "time": 610.0},
    ]  # fmt: skip
    run = Run(make_run(tmp_path / "run", events=events))
    assert (run.starts, run.seconds) == (2, 15.0)


def test_runs_are_found_newest_first_and_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old = make_run(tmp_path / "runs" / "old", status=None)
    for name in ("metrics.jsonl", "events.jsonl", "config.yaml"):
        os.utime(old / name, (STARTED, STARTED))
    make_run(tmp_path / "runs" / "group" / "new")
    (tmp_path / "runs" / "no run").mkdir()
    assert [run.name for run in find_runs(tmp_path / "runs")] == ["new", "old"]
    assert open_run("old").folder == open_run("runs/old").folder
    with pytest.raises(ConfigError, match="is no run folder"):
        open_run("runs")
    with pytest.raises(ConfigError, match="there is no run nothing"):
        open_run("nothing")


def test_command(tmp_path, capsys):
    make_run(tmp_path / "whole")
    make_run(tmp_path / "broken", status="failed", message="no space [left]", events=STOPPED)
    assert main(["runs", str(tmp_path), "--json"]) == 0
    rows = {row["run"].rpartition("/")[2]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["whole"]["state"], rows["whole"]["best"], rows["whole"]["update"]) == ("done", 0.5, 20)
    assert rows["broken"]["failure"] == "no space [left]"
    assert main(["runs", str(tmp_path), "--state", "failed"]) == 0
    out = capsys.readouterr().out
    assert "no space [left]" in out
    assert "whole" not in out
    assert main(["runs", str(tmp_path / "nowhere")]) == 2


@pytest.mark.parametrize(
    ("seconds", "age", "duration"),
    [
        (0.4, "0 s", "0 s"),
        (75, "1 min", "1 min 15 s"),
        (3 * 3600 + 61, "3 h", "3 h 1 min"),
        (90000, "1 d", "1 d 1 h"),
    ],
)
def test_times(seconds, age, duration):
    assert (show_age(seconds), show_duration(seconds)) == (age, duration)


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("validation_accuracy", 0.94, "validation accuracy 94.00%"),
        ("validation_loss", 0.25, "validation loss 0.2500"),
        ("validation_loss", None, "–"),
        (None, None, "–"),
    ],
)
def test_metric_text(metric, value, text):
    assert metric_text(metric, value) == text


def test_flatten():
    assert flatten({"a": {"b": 1, "c": {}}, "d": None}) == {"a.b": 1, "a.c": {}, "d": None}


def test_what_comes_from_files_does_not_act_on_the_terminal():
    assert plain_line("a\x1b[2Jb\nc\u202ed\té漢") == "a\\x1b[2Jb c\\u202ed é漢"
