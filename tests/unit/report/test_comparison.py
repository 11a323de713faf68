import json

import numpy as np
import pytest
from run_folders import CONFIG, make_run, train_record

from distxcept.cli.main import main
from distxcept.report.comparison import Parting, config_differences, first_parting, largest_difference

WHOLE = [train_record(update) for update in range(1, 6)]


def changed(number: int, **fields):
    return [{**entry, **fields} if entry["update"] == number else entry for entry in WHOLE]


@pytest.mark.parametrize(
    ("other", "tolerance", "expected"),
    [
        (WHOLE, 0.0, None),
        (changed(4, images_per_second=1.0, peak_memory=1), 0.0, None),
        (changed(3, loss=2.0 / 3 + 1e-12), 0.0, Parting(3, 2, "loss", (2.0 / 3, 2.0 / 3 + 1e-12))),
        (changed(3, loss=2.0 / 3 + 1e-12), 1e-9, None),
        (changed(1, learning_rate=0.2), 1e-3, Parting(1, 0, "learning_rate", (0.1, 0.2))),
        (changed(5, loss=None), 1e-3, Parting(5, 4, "loss", (0.4, None))),
        (WHOLE[:2], 0.0, None),
        # Every second update told: a mean over two is no mean over one, so nothing can be compared.
        (WHOLE[1::2], 0.0, None),
    ],
)
def test_first_parting(other, tolerance, expected):
    assert first_parting(WHOLE, other, tolerance=tolerance) == expected


def test_parting_between_records():
    """With `run.log_every` 10 it happened in one of ten updates."""
    ours = [train_record(10), train_record(20), train_record(30)]
    theirs = [train_record(10), train_record(20, loss=9.0), train_record(30)]
    found = first_parting(ours, theirs)
    assert found is not None
    assert (found.after, found.update) == (10, 20)


def test_config_differences():
    other = {**CONFIG, "run": {"name": "two", "seed": 4, "updates": 20}, "new": {"key": 1}}
    assert config_differences([CONFIG, other, CONFIG]) == {"run.seed": [3, 4, 3], "new.key": [None, 1, None]}


def tensors(**values):
    return {f"weights/{name}": np.asarray(value, np.float32) for name, value in values.items()}


def test_largest_difference():
    ours = tensors(a=[1.0, -4.0], b=[0.5], c=[7.0]) | {"slots/m/a": np.zeros(2)}
    theirs = tensors(a=[1.0, -3.0], b=[0.25], c=[7.0]) | {"slots/v/a": np.ones(2)}
    found = largest_difference(ours, theirs, (5, 5))
    assert not isinstance(found, str)
    assert (found.tensor, found.relative, found.equal_tensors, found.tensors) == ("b", 0.5, 1, 3)
    assert "other tensors" in str(largest_difference(ours, tensors(a=[1.0, 1.0])))
    assert "[2] in one and [1]" in str(largest_difference(tensors(a=[1.0, 2.0]), tensors(a=[1.0])))
    nan = largest_difference(tensors(a=[1.0]), tensors(a=[np.nan]))
    assert not isinstance(nan, str)
    assert nan.relative is None


def test_command(tmp_path, capsys):
    one = make_run(tmp_path / "one", weights={"a": np.ones(2)})
    metrics = [
        train_record(update, loss=2.0 / update * (1.5 if update > 7 else 1)) for update in range(1, 21)
    ]
    config = {**CONFIG, "optimizer": {"name": "sgd", "learning_rate": 0.2}}
    two = make_run(tmp_path / "two", metrics=metrics, config=config, weights={"a": np.array([1.0, 1.25])})
    assert main(["compare", str(one), str(two), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (pair,) = found["pairs"]
    assert pair["parts"]["update"] == pair["first_difference"]["update"] == 8
    assert (pair["weights"]["tensor"], pair["weights"]["relative"]) == ("a", 0.25)
    assert found["config"] == {"optimizer.learning_rate": [0.1, 0.2]}
    assert [entry["best"] for entry in found["runs"]] == [0.5, None]
    assert main(["compare", str(one), str(two)]) == 0
    out = capsys.readouterr().out
    assert "they differ first in update 8: loss 0.25 and 0.375" in out
    assert "largest relative difference 0.25, in a; 0 of 1 tensors are equal" in out


def test_equal_runs_and_wrong_usage(tmp_path, capsys):
    for name in ("one", "two"):
        make_run(tmp_path / name, weights={"a": np.ones(2)})
    assert main(["compare", str(tmp_path / "one"), str(tmp_path / "two")]) == 0
    out = capsys.readouterr().out
    assert "the same course, to the last digit, in 20 records" in out
    assert "the same bits in all 1 tensors" in out
    assert main(["compare", str(tmp_path / "one")]) == 2
    assert main(["compare", str(tmp_path / "one"), str(tmp_path)]) == 2
    assert main(["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--tolerance", "x"]) == 2
