from pathlib import Path

import numpy as np
import pytest

from distxcept.checkpoint.store import Store
from distxcept.cli.onlookers import next_commands


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
