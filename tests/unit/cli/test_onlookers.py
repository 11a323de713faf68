"""Who looks at a training leaves in an order in which each has what it needs; and what one may want next."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distxcept.checkpoint.store import Store
from distxcept.cli.onlookers import Onlookers, next_commands
from distxcept.config.schema import Config
from distxcept.report import report_file
from tests.unit.report.run_folders import make_run, started

FOUND = {"classes": ["a"], "confusion": [[0, 0, 1]], "best": [], "worst": []}


def test_what_a_stopped_training_predicted_last_is_drawn_before_the_writers_are_closed(tmp_path, monkeypatch):
    calls: list[tuple[str, int]] = []

    class Board:
        def __init__(self, about: Any): ...

        def image(self, name: str, step: int, png: bytes, caption: str) -> None:
            calls.append((name, step))

        def close(self, summary: Mapping[str, Any]) -> None:
            calls.append(("closed", 0))

    def write_outcomes(folder, outcomes, source, update):
        return {**FOUND, "update": update}

    monkeypatch.setattr("distxcept.report.writers.tensorboard.TensorBoardWriter", Board)
    monkeypatch.setattr(report_file, "write_outcomes", write_outcomes)
    args = argparse.Namespace(quiet=True, verbose=False, make_network=None, profile=None, callbacks=())
    folder = make_run(tmp_path / "run")
    data = {"train": {"kind": "synthetic", "samples": 8, "classes": 2}}
    config = Config.model_validate({"data": data, "batch": {"global": 8}})
    with pytest.raises(KeyboardInterrupt), Onlookers(args, config, folder, chief=True) as onlookers:
        onlookers.observer.started(started(run_folder=str(folder)))
        for update in (10, 20):
            onlookers.observer.predicted(None, None, update)
        raise KeyboardInterrupt
    assert calls == [("confusion matrix", 10), ("confusion matrix", 20), ("closed", 0)]


@pytest.mark.parametrize(("best", "name"), [(True, "a run:best"), (False, "a run")])
def test_the_next_commands_take_the_best_snapshot_where_there_is_one(tmp_path, monkeypatch, best, name):
    monkeypatch.chdir(tmp_path)
    run = Path("a run")
    weights = {"weights/a": np.zeros(2, np.float32)}
    Store(run).save(1, weights, {}, keep=1, best=best)
    Store(run).save(2, weights, {}, keep=1)
    assert next_commands(run) == [
        f"distxcept predict '{name}' PHOTO.jpg",
        f"distxcept evaluate '{name}'",
        f"distxcept export '{name}' --format savedmodel",
    ]
    assert next_commands(run, own_model=True)[0] == f"predict(...) of Run('{name}', model=...)"


def test_a_run_without_a_snapshot_has_no_best_one(tmp_path):
    assert next_commands(tmp_path)[1] == f"distxcept evaluate {tmp_path}"
