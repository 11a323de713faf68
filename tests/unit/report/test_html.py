"""What stands in the report; how a browser shows it is tests/integration/test_report_page.py."""

import json
import re
from pathlib import Path

import pytest
from run_folders import CONFIG, STARTED, make_run, started, train_record, validation_record, write_lines

from distxcept.cli.main import main
from distxcept.report import report_file
from distxcept.report.curves import device_curves, markers, run_curves
from distxcept.report.html import run_page, write_report
from distxcept.report.prediction_sections import class_rows
from distxcept.report.report_file import ReportFile
from distxcept.report.runs import Run


def curves(page: str) -> dict[str, dict]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return {spec["id"]: spec for spec in json.loads(text)}


def test_figures(tmp_path):
    run = Run(make_run(tmp_path / "run"))
    found = curves(run_page(run))
    training, validation = found["loss"]["series"]
    assert training["x"] == list(range(1, 21))
    assert training["y"] == pytest.approx([entry["loss"] for entry in run.train], rel=1e-5)
    assert (validation["x"], validation["y"]) == ([10, 20], [0.75, 0.5])
    assert found["speed"]["series"][0]["y"][0] == 101


@pytest.mark.parametrize("missing", ["metrics.jsonl", "events.jsonl", "env.json", "plan.json", "status"])
def test_whatever_is_missing_there_is_a_page(tmp_path, missing):
    folder = make_run(tmp_path / "run")
    path = folder / missing
    path.rename(tmp_path / "away")
    assert "<h1>run" in run_page(Run(folder))


@pytest.mark.parametrize(
    "rubbish",
    [
        "",
        "[]",
        '{"classes": ["a"], "confusion": [[0, 9, 1]]}',
        '{"classes": 3}',
        '{"classes": [], "confusion": [[1]]}',
    ],
)
def test_rubbish_instead_of_predictions(tmp_path, rubbish):
    folder = make_run(tmp_path / "run")
    (folder / "predictions.json").write_text(rubbish)
    assert "Predictions" not in run_page(Run(folder))


def test_odd_values_in_the_metrics(tmp_path):
    metrics = [
        train_record(1, loss="much"),
        train_record(2, loss=None),
        {"kind": "train"},
        {**train_record(3), "update": "x"},
    ]
    run = Run(make_run(tmp_path / "run", metrics=[*metrics, validation_record(3, 0.5), train_record(4)]))
    found = curves(run_page(run))
    assert found["loss"]["series"][0]["y"] == [None, None, 0.5]


def test_nothing_is_loaded_from_elsewhere(tmp_path):
    page = run_page(Run(make_run(tmp_path / "run")))
    assert {address.split(",")[0] for address in re.findall(r"(?:src|href)=(\S+)", page)} == {'"data:'}
    assert not re.search(r"url\((?!#)|@import|fetch\(|XMLHttpRequest", page)
    assert "default-src 'none'" in page


def test_bad_images_stand_in_the_timeline(tmp_path):
    event = {"kind": "bad_images", "time": STARTED, "update": 7, "message": "3 images could not be read"}
    page = run_page(Run(make_run(tmp_path / "run", events=[started(), event])))
    assert "<td>7</td><td>bad images</td><td>3 images could not be read</td>" in page


def test_markers_and_devices():
    events = [
        started(), started(5), {"kind": "skipped_update", "update": 7, "message": "x"}, {"kind": "saved", "update": 9}
    ]  # fmt: skip
    assert [(mark["x"], mark["text"].split()[0]) for mark in markers(events)] == [
        (5, "started"),
        (7, "update"),
    ]
    card = {"index": 3, "memory_used_bytes": 2**31, "utilisation_percent": None}
    samples = [
        {
            "kind": "sample",
            "rank": rank,
            "time": STARTED + 60 * k,
            "rss_bytes": 2**30,
            "cpu_share": 0.5,
            "cards": [card],
        }
        for k in range(3)
        for rank in (10, 9)
    ]
    found = {
        spec["id"]: spec["series"] for spec in device_curves([*samples, {"kind": "notice", "time": 1.0}])
    }
    assert found.keys() == {"card-memory", "process-memory", "process-use"}
    assert [one["name"] for one in found["card-memory"]] == ["rank 9 GPU 3", "rank 10 GPU 3"]
    assert (found["card-memory"][0]["x"], found["card-memory"][0]["y"]) == ([0, 1, 2], [2, 2, 2])


def test_devices_while_the_run_was_not_running(tmp_path):
    """Two processes a day apart; the second one's other rank looks before the chief has told of the start."""
    day = 86_400.0
    moments = [0, 60, 90, day - 0.5, day + 59.5, day + 119.5]
    samples = [
        {"kind": "sample", "rank": rank, "time": STARTED + at + rank / 4, "rss_bytes": 2**30}
        for at in moments
        for rank in range(2)
    ]
    folder = make_run(tmp_path / "run", events=[started(), started(5, STARTED + day)])
    write_lines(folder / "telemetry.jsonl", samples)
    ranks = curves(run_page(Run(folder)))["process-memory"]["series"]
    for rank, series in enumerate(ranks):
        assert series["y"] == [1, 1, 1, None, 1, 1, 1]
        later = [90.25 + 1 + 60 * k for k in range(3)]
        expected = [at + rank / 4 for at in (0, 60, 90)] + [90.75] + [at + rank / 4 for at in later]
        assert series["x"] == pytest.approx([seconds / 60 for seconds in expected])


def test_many_ranks_share_the_points(tmp_path):
    samples = [
        {"kind": "sample", "rank": rank, "time": STARTED + k, "rss_bytes": k, "cpu_share": 0.5, "cards": []}
        for k in range(400)
        for rank in range(100)
    ]
    memory = next(spec for spec in device_curves(samples) if spec["id"] == "process-memory")
    assert len(memory["series"]) == 64
    assert sum(len(one["x"]) for one in memory["series"]) <= 12_000


def test_curves_without_values_are_left_out(tmp_path):
    run = Run(make_run(tmp_path / "run", metrics=[train_record(1, gradient_norm=None)]))
    assert "gradient-norm" not in {spec["id"] for spec in run_curves(run)}


def test_class_rows():
    rows = class_rows(["a", "b", "c", "d"], {(0, 0): 3, (0, 1): 1, (1, 1): 1, (2, 0): 2})
    assert [(row["name"], row["samples"], row["recall"], row["precision"]) for row in rows] == [
        ("c", 2, 0.0, None),
        ("a", 4, 0.75, 0.6),
        ("b", 1, 1.0, 0.5),
    ]


def test_command(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    assert "distxcept train &#x27;a b.yaml&#x27;" in (folder / "report.html").read_text()
    other = tmp_path / "other.html"
    assert main(["report", str(folder), "-o", str(other), "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert other.exists()
    assert main(["report", str(tmp_path)]) == 2
    assert main(["report", str(folder), "-o", str(tmp_path / "none" / "x.html")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_how_it_was_started(tmp_path):
    page = run_page(Run(make_run(tmp_path / "run")))
    for row in (
        "<th>working directory</th><td>/a place</td>",
        "<th>launcher</th><td>mpirun × 4 ranks</td>",
        "<th>tensorflow</th><td>2.21</td>",
        "<th>TF_ENABLE_ONEDNN_OPTS</th><td>1</td>",
        "<th>memory</th><td>micro batch 16</td>",
    ):
        assert row in page


def test_written_however_the_training_ends(tmp_path):
    folder = make_run(
        tmp_path / "run", status="failed", message="no <space>", events=[started()], config=CONFIG
    )
    with pytest.raises(KeyboardInterrupt), ReportFile(folder) as report:
        report.started(started())
        raise KeyboardInterrupt
    assert "no &lt;space&gt;" in (folder / "report.html").read_text()


def test_not_written_where_nothing_began(tmp_path):
    """Another process may be using the run folder: it was refused to this one."""
    folder = make_run(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt), ReportFile(folder):
        raise KeyboardInterrupt
    assert not (folder / "report.html").exists()


def test_a_report_that_cannot_be_written_is_told_once(tmp_path):
    folder, told = make_run(tmp_path / "run"), []
    (folder / "report.html").mkdir()
    with ReportFile(folder, told.append) as report:
        report.started(started())
        report.ended({})
    assert len(told) == 1
    assert "no report was written" in told[0]
    assert [path for path in folder.iterdir() if path.name.endswith(".writing")] == []


def test_ten_thousand_updates_take_less_than_three_megabytes(tmp_path):
    metrics = [train_record(update, loss=1 / (update + 0.123456789)) for update in range(1, 10_001)]
    run = Run(make_run(tmp_path / "run", metrics=metrics))
    write_lines(
        tmp_path / "run" / "telemetry.jsonl",
        [
            {
                "kind": "sample",
                "rank": rank,
                "time": STARTED + k / 7,
                "rss_bytes": 2**30 + k,
                "cpu_share": k / 9000,
                "cards": [],
            }
            for k in range(1000)
            for rank in range(8)
        ],
    )
    assert write_report(run, Path(tmp_path / "r.html")).stat().st_size < 3_000_000


@pytest.mark.parametrize("ends", [True, False])
def test_predictions_of_the_last_evaluation_however_the_training_ends(tmp_path, monkeypatch, ends):
    """And those of the first one, so that a training that still runs has some."""
    written, drawn = [], []
    monkeypatch.setattr(report_file, "write_outcomes", lambda folder, *newest: written.append(newest) or {})
    with ReportFile(make_run(tmp_path / "run"), describe=drawn.append) as report:
        report.started(started())
        for update in (10, 20, 30):
            report.predicted(None, None, update)
        assert [update for _, _, update in written] == [10]
        if ends:
            report.ended({})
    assert [update for _, _, update in written] == [10, 30]
    assert len(drawn) == 2


def test_predictions_in_between(tmp_path, monkeypatch):
    clock, written = iter([0.0, 599.0, 600.0, 600.0]), []
    monkeypatch.setattr(report_file.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(
        report_file, "write_outcomes", lambda folder, *newest: written.append(newest[2]) or {}
    )
    report = ReportFile(tmp_path)
    for update in (10, 20, 30):
        report.predicted(None, None, update)
    assert written == [10, 30]


def test_a_drawing_that_fails_takes_no_predictions_away(tmp_path, monkeypatch):
    folder, told = make_run(tmp_path / "run"), []
    monkeypatch.setattr(report_file, "write_outcomes", lambda *_: {"update": 1})

    def describe(found):
        raise ValueError("no\nfont")

    ReportFile(folder, told.append, describe).predicted(None, None, 1)
    assert told == ["warning: the predictions are written, but were not drawn (ValueError: no font)"]

    def fail(*_):
        raise OSError("no space\nleft")

    monkeypatch.setattr(report_file, "write_outcomes", fail)
    ReportFile(folder, told.append, describe).predicted(None, None, 1)
    assert told[1:] == ["warning: no predictions were written (OSError: no space left)"]
