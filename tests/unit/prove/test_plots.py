"""benchmarks/plots.py: pictures of what was measured, and of nothing else."""

import json
import sys
from pathlib import Path

import pytest
from PIL import Image

from benchmarks import plots
from distxcept.prove.race import table
from distxcept.prove.race.setting import Setting
from distxcept.prove.race.turns import Contestant, Result, Turn


def result(name: str, seconds: float) -> Result:
    return Result(
        Contestant(name, ()), [Turn(1, 8, seconds * k, 2**30, {}) for k in (0.9, 1.0, 1.1)], [1.0] * 3
    )


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    setting = Setting(128, 8)
    failed = Result(Contestant("PyTorch eager", ()), [], [], failure="it ended")
    step = [result("distxcept", 1.0), result("keras fit", 2.0), failed]
    steps = [result(f"{who}, k = {k}", 1.0) for who in ("distxcept", "keras fit") for k in (1, 2, 4)]
    updates = [{"ranks": ranks, "batch": 4, "seconds": 1.0} for ranks in (1, 2, "mirrored 2")]
    found = {
        "step": [table.as_json(step, setting)],
        "accumulate": table.as_json(steps, setting)
        | {"memory": table.as_json(steps, setting)["contestants"]},
        "scale": {"updates": updates},
    }
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(found))
    return path


def test_one_picture_of_each_program(measured: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["plots.py", str(measured), str(tmp_path / "images")])
    plots.main()
    drawn = capsys.readouterr().out.split()
    assert [Path(one).name for one in drawn] == ["step.png", "accumulate.png", "scale.png"]
    for one in drawn:
        with Image.open(one) as picture:
            assert len(picture.convert("RGB").getcolors(2**24)) > 10, "something is drawn"


def test_what_failed_is_not_drawn(measured: Path) -> None:
    figure = plots.step(json.loads(measured.read_text())["step"])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["keras fit", "distxcept"]


def test_what_was_not_measured_is_left_out(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "bench.json").write_text("{}")
    monkeypatch.setattr(sys, "argv", ["plots.py", str(tmp_path / "bench.json"), str(tmp_path)])
    plots.main()
    assert capsys.readouterr().out == ""
