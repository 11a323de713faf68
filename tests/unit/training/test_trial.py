"""A trial of a memory plan runs every form of update that the run will have: the run holds the graphs of all."""

from types import SimpleNamespace

import pytest

from distxcept.config.schema import Config
from distxcept.engines import devices
from distxcept.training import trial, update


@pytest.mark.parametrize(("padded", "samples_of_each"), [(False, [8.0, 8.0]), (True, [7.0, 8.0, 8.0])])
def test_forms_of_update(monkeypatch, padded, samples_of_each):
    seen = []

    class Recorded:
        def __init__(self, *_):
            pass

        def __call__(self, batches, plan, **_):
            seen.append(float(batches[0].weights.sum()))
            return SimpleNamespace(out_of_memory=False)

    monkeypatch.setattr(update, "Update", Recorded)
    monkeypatch.setattr(devices, "prepare_devices", lambda *_, **__: ["CPU:0"])
    train = {"kind": "synthetic", "samples": 15, "classes": 2}
    config = Config.model_validate(
        {
            "model": {"image_size": 71, "width": 0.0625},
            "data": {"train": train},
            "batch": {"global": 8, "virtual": 4, "micro": 4},
        }
    )
    tree = config.model_dump(mode="json", by_alias=True)
    assert trial.run_trial(trial.Request(tree, 2, False, 2, padded, "CPU:0", 1, None, 1)).fits
    assert seen == samples_of_each
