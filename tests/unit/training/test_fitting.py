"""Running out of memory where this process cannot mend it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from distxcept.config.schema import Config
from distxcept.memory.memory_plan import read_memory_plan
from distxcept.training.build import build_plan
from distxcept.training.fitting import Fitting
from distxcept.training.out_of_memory import LostForMemoryError


def lost_in(folder: Path) -> None:
    config = Config.model_validate(
        {
            "data": {"train": {"kind": "synthetic", "samples": 64, "classes": 2}},
            "batch": {"global": 32, "virtual": 8, "micro": 32},
        }
    )
    training = SimpleNamespace(config=config, plan=build_plan(config, 64, 1), remat=False)

    def update():
        raise LostForMemoryError("while the weights were changing")

    with pytest.raises(LostForMemoryError):
        Fitting(training, folder, None, lambda: None).run(1, update)


def test_it_leaves_a_smaller_plan_behind(tmp_path):
    lost_in(tmp_path)
    left = read_memory_plan(tmp_path)
    assert left is not None and (left.micro, left.remat) == (16, False)


def test_a_disk_that_takes_nothing_hides_nothing(tmp_path):
    lost_in(tmp_path / "none")
