"""A Keras model of one's own, trained through the Python interface: one result on any device, that of Keras."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from launchers import PROGRAMS, REPOSITORY
from ready_runs import noise_folders
from safetensors.numpy import load_file
from small_runs import difference

from distxcept.cli.main import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """After programs/own_model.py, which also runs what the page about the interface shows."""
    folder = tmp_path_factory.mktemp("own")
    noise_folders(folder / "photos")
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "own_model.py"), str(folder), str(REPOSITORY / "docs" / "api.md")],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def tensors(run: Path, update: int = 3) -> dict[str, np.ndarray]:
    return load_file(run / "checkpoints" / f"update-{update:08d}" / "tensors.safetensors")


@pytest.mark.parametrize("name", ["whole", "mirrored"])
def test_same_weights_in_any_micro_steps_on_any_devices(folder, name):
    """`virtual` was interrupted and gone on with as well. Weights, slots, moving average and statistics."""
    expected = tensors(folder / "virtual")
    assert difference(tensors(folder / name), expected) < 1e-11
    started = tensors(folder / "virtual", 1)
    assert (
        difference(
            {k: v for k, v in started.items() if "kernel" in k},
            {k: expected[k] for k in started if "kernel" in k},
        )
        > 1e-4
    )
    assert json.loads((folder / "mirrored" / "plan.json").read_text())["replicas"] == 2


def test_one_update_is_that_of_keras(folder):
    ours = {
        name.removeprefix("weights/"): value
        for name, value in tensors(folder / "once", 1).items()
        if name.startswith("weights/")
    }
    keras = dict(np.load(folder / "keras.npz"))
    assert len(keras) == 18
    assert difference(ours, keras) < 1e-12


def test_the_answers_are_those_of_the_model_that_comes_back(folder):
    answers = np.load(folder / "answers.npz")
    assert np.max(np.abs(answers["ours"] - answers["keras"])) < 1e-6
    assert (folder / "flowers.keras").is_file()  # of the page's example


def test_another_model_is_refused(folder):
    texts = json.loads((folder / "refused.json").read_text())
    (description,) = [path for path in (folder / "whole").glob("model-*.json")]
    digest = description.stem.removeprefix("model-")
    assert f"was trained with the model {digest}, and this one is" in texts["another"]
    assert "model=" in texts["none"] and digest in texts["none"]
    assert texts["right"] == "nothing"
    assert f"(model given from Python: {digest} → " in texts["resumed"]
    assert f"model given from Python: {digest} → None" in texts["by config"]
    assert "keras_model()" in texts["export"]


@pytest.mark.parametrize(
    "command", [["predict", "RUN", "a.jpg"], ["evaluate", "RUN"], ["export", "RUN", "--format", "keras"]]
)
def test_the_command_line_says_that_it_takes_python(folder, command, capsys):
    run = str(folder / "whole")
    assert main([run if word == "RUN" else word for word in command]) == 2
    message = capsys.readouterr().err
    assert "distxcept.Run(" in message and message.count("\n") == 1
