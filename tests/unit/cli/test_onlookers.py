"""Who looks at a training leaves in an order in which each has what it needs."""

import argparse
from collections.abc import Mapping
from typing import Any

import pytest

from distxcept.cli.onlookers import Onlookers
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
