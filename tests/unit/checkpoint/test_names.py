"""RUN, RUN:best, RUN:update=1200: what each stands for, and what is said when there is no such snapshot."""

import shutil

import numpy as np
import pytest
from small_snapshots import save

from distxcept.checkpoint.names import find_snapshot, weights_path
from distxcept.checkpoint.snapshot import OtherTrainingError
from distxcept.checkpoint.store import Store
from distxcept.errors import ConfigError


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "run"
    for update in (100, 200, 300):
        save(folder, update, best=update == 200)
    return folder


@pytest.mark.parametrize(
    ("selector", "update"),
    [
        ("", 300),
        (":latest", 300),
        (":best", 200),
        (":update=100", 100),
        ("/", 300),
        ("/checkpoints/update-00000100", 100),
    ],
)
def test_names(run_folder, selector, update):
    found = find_snapshot(f"{run_folder}{selector}")
    assert found.snapshot.update == update
    assert found.run_folder.resolve() == run_folder.resolve()
    assert found.passed_over == ()


def test_a_run_with_a_colon_in_its_name(run_folder):
    moved = run_folder.rename(run_folder.with_name("a:best"))
    assert find_snapshot(str(moved)).snapshot.update == 300
    assert find_snapshot(f"{moved}:best").snapshot.update == 200


def test_a_snapshot_that_was_copied_elsewhere(run_folder, tmp_path):
    place = shutil.copytree(run_folder / "checkpoints" / "update-00000100", tmp_path / "mine")
    found = find_snapshot(str(place))
    assert (found.snapshot.update, found.run_folder) == (100, None)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (":update=150", "there is no update-00000150; there are update=100, update=200, update=300"),
        (":update=", "'' is no number of updates"),
        (":update=../../x", "is no number of updates"),
        (":update=1e3", "is no number of updates"),
        (":worst", "there is no run .*:worst; .* give RUN, RUN:best"),
        ("/checkpoints/update-00000100:best", "is one snapshot, and best chooses"),
        ("x", "there is no run .*runx; `distxcept runs` lists"),
    ],
)
def test_there_is_no_such_snapshot(run_folder, selector, message):
    with pytest.raises(ConfigError, match=message) as error:
        find_snapshot(f"{run_folder}{selector}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("selector", "update"), [("", 300), (":best", 200), (":update=100", 100)])
def test_a_run_is_known_by_its_name_below_runs(run_folder, tmp_path, monkeypatch, selector, update):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run_folder, tmp_path / "runs" / "quick")
    (tmp_path / "quick").mkdir()  # a folder of that name that holds something else
    assert find_snapshot(f"quick{selector}").snapshot.update == update
    assert weights_path("quick:best") == "runs/quick/checkpoints/update-00000200"
    save(tmp_path / "quick", 7, best=True)
    assert find_snapshot("quick").snapshot.update == 7  # a run at the path itself comes first
    with pytest.raises(
        ConfigError, match=r"there is no run quik; `distxcept runs` lists .* give RUN, RUN:best"
    ):
        find_snapshot(f"quik{selector}")


def test_damage(run_folder):
    (run_folder / "checkpoints" / "update-00000300" / "state.json").write_text("{}")
    found = find_snapshot(str(run_folder))
    assert found.snapshot.update == 200
    assert "update-00000300" in found.passed_over[0]
    with pytest.raises(ConfigError, match=r"cannot be used: .*checksum"):
        find_snapshot(f"{run_folder}:update=300")


def test_no_snapshot_no_best(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="has no snapshot yet"):
        find_snapshot(str(tmp_path / "empty"))
    save(tmp_path / "run", 1)
    with pytest.raises(ConfigError, match="no snapshot is named best"):
        find_snapshot(f"{tmp_path / 'run'}:best")


def test_the_moving_average_is_what_inference_takes(tmp_path):
    tensors = {
        "weights/a": np.zeros(2, np.float32),
        "weights/frozen": np.full(3, 7, np.float32),
        "ema/a": np.ones(2, np.float32),
        "slots/velocity/a": np.zeros(2, np.float32),
    }
    Store(tmp_path).save(1, tensors, {}, keep=1)
    snapshot = find_snapshot(str(tmp_path)).snapshot
    found = snapshot.inference_tensors({"a": (2,), "frozen": (3,)})
    assert (found["a"] == 1).all() and (found["frozen"] == 7).all()
    with pytest.raises(OtherTrainingError, match=r"has ema/a as \(2,\) float32, but .* \(4,\)"):
        snapshot.inference_tensors({"a": (4,), "frozen": (3,)})
    with pytest.raises(OtherTrainingError, match="has no weights/b"):
        snapshot.inference_tensors({"b": (4,)})


def test_names_in_the_config(run_folder):
    best = str(run_folder / "checkpoints" / "update-00000200")
    assert weights_path(f"{run_folder}:best") == best
    for other in (None, "imagenet", "weights.h5", str(run_folder), "C:/weights.h5"):
        assert weights_path(other) == other
    with pytest.raises(ConfigError, match="there is no update-00000007"):
        weights_path(f"{run_folder}:update=7")
