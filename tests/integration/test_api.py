"""The ten lines of a notebook: train, hear of it, go on, look at the result, ask the model."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from launchers import MPIRUN, python, run, skip_without
from PIL import Image
from safetensors.numpy import load_file
from small_runs import difference

import distxcept
from distxcept import Callback, Run, Trainer
from distxcept.errors import ConfigError

CONFIG = {
    "run": {"name": "notebook", "updates": 6, "log_every": 2, "seed": 3},
    "model": {"image_size": 71, "width": 0.0625, "middle_blocks": 1, "freeze": "backbone"},
    "data": {
        "train": {"kind": "synthetic", "samples": 16, "classes": 3},
        "validation": {"kind": "synthetic", "samples": 9, "classes": 3},
        "augment": None,
    },
    "batch": {"global": 8, "virtual": 4},
    "checkpoint": {"every_minutes": None},
}


class Heard(Callback):
    def __init__(self) -> None:
        self.updates: list[int] = []
        self.validations: list[int] = []

    def updated(self, update, loss, accuracy):
        self.updates.append(update)

    def validated(self, record):
        self.validations.append(record.samples)


class Interrupting(Callback):
    """As a person who interrupts the kernel."""

    def updated(self, update, loss, accuracy):
        import os
        import signal

        if update == 2:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Run, Heard, bool]:
    """Interrupted at update 2, then gone on with."""
    overrides = {"run.dir": str(tmp_path_factory.mktemp("runs"))}
    first = Trainer(CONFIG, overrides, callbacks=[Interrupting()], quiet=True).train()
    assert not first.finished
    heard = Heard()
    run = Trainer(CONFIG, overrides, callbacks=[heard], quiet=True).train()
    return run, heard, first.finished


def test_training_goes_on_and_callbacks_hear_of_it(trained):
    run, heard, _ = trained
    assert run.finished
    assert run.update == 6
    assert heard.updates[-1] == 6 and heard.updates[0] > 2
    assert heard.validations[-1] == 9
    assert [line["update"] for line in run.metrics("train")] == [2, 4, 6]


def test_scores_and_answers(trained, tmp_path):
    run, _, _ = trained
    scores = run.evaluate()
    assert scores.samples == 9
    assert scores.accuracy == pytest.approx(run.metrics("validation")[-1]["accuracy"])
    Image.new("RGB", (80, 90), (250, 20, 20)).save(tmp_path / "red.png")
    good, bad = run.predict([tmp_path / "red.png", tmp_path / "none.png"], top=2)
    assert good.labels[0] in run.class_names and len(good.probabilities) == 2
    assert bad.error is not None
    red = np.full([1, 71, 71, 3], (250, 20, 20), np.uint8)
    assert run.probabilities(red).max() == pytest.approx(good.probabilities[0], abs=1e-5)
    with pytest.raises(ConfigError, match="expected uint8"):
        run.probabilities(red.astype(np.float32))


def test_a_mistake_is_told_at_once():
    config = copy.deepcopy(CONFIG)
    config["optimizer"] = {"learning_rat": 0.1}
    with pytest.raises(ConfigError, match="learning_rate"):
        Trainer(config)
    with pytest.raises(ConfigError, match="global"):
        Trainer(CONFIG, {"batch.global": "many"})


def test_the_import_costs_nothing():
    code = (
        "import sys, json, distxcept; light = sorted({'numpy', 'pydantic', 'yaml', 'tensorflow'} & set(sys.modules));"
        "from distxcept import Trainer, Run, Callback; print(json.dumps([light, 'tensorflow' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], False]
    with pytest.raises(AttributeError, match="Trainr"):
        distxcept.Trainr  # noqa: B018 - asking for it is the test


def test_runs_are_named_as_on_the_command_line(trained):
    run, _, _ = trained
    folder = Path(run.name)
    assert Run(f"{folder}:update=6").update == 6
    with pytest.raises(ConfigError, match="update=6"):
        _ = Run(f"{folder}:update=5").update


@pytest.mark.soak
@pytest.mark.mpi
def test_a_script_in_two_ranks_gives_the_weights_of_one_process(tmp_path):
    skip_without("horovod", "mpirun")
    found = {}
    for ranks in (1, 2):
        launcher = [*MPIRUN, "-np", str(ranks)] if ranks > 1 else []
        done = run([*launcher, *python("api_in_ranks.py", tmp_path, f"ranks-{ranks}")])
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stdout.splitlines() == ["heard of update 4"], "callbacks are of the first rank"
        folder = tmp_path / f"ranks-{ranks}"
        assert json.loads((folder / "plan.json").read_text())["replicas"] == ranks
        found[ranks] = load_file(folder / "checkpoints" / "update-00000004" / "tensors.safetensors")
    apart = difference(found[2], found[1])
    print(f"largest relative difference {apart:.2g}")
    assert apart < 1e-11
