"""The event files, read by TensorBoard itself."""

import itertools
import json
import re
import struct
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from distxcept.report.drawings import confusion_png
from distxcept.report.telemetry_files import TelemetryFiles
from distxcept.report.writers import About
from distxcept.report.writers.tensorboard import TensorBoardWriter
from tests.unit.memory.samples import sample

LARGE = np.random.default_rng(0).normal(size=(1000, 300)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("board")
    settings = {
        "optimizer.learning_rate": 0.1,
        "data.augment.flip": True,
        "run.name": "é",
        "run.updates": None,
    }
    writer = TensorBoardWriter(About("one", run, settings))
    for step in (5, 10):
        writer.scalars("train", step, {"loss": 1 / step})
    writer.scalars("validation", 10, {"loss": 0.25})
    writer.histograms(
        10, {"block1/kernel": np.array([0.0, 1.0, 1.0, np.nan]), "empty": np.array([np.nan]), "large": LARGE}
    )
    png = confusion_png({"classes": ["a", "b"], "confusion": [[0, 1, 3]]})
    assert png is not None
    writer.image("confusion matrix", 10, png, "rows")
    writer.text("plateau", 10, "learning rate × 0.1")
    writer.close({"update": 10})
    return run / "tensorboard"


def read(folder: Path):
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def test_scalars_lie_over_each_other(folder):
    train, validation = read(folder / "train"), read(folder / "validation")
    assert [(event.step, event.value) for event in train.Scalars("loss")] == [
        (5, pytest.approx(0.2)),
        (10, pytest.approx(0.1)),
    ]
    assert [(event.step, event.value) for event in validation.Scalars("loss")] == [(10, 0.25)]


def test_images_histograms_text(folder):
    found = read(folder / "validation")
    (image,) = found.Images("confusion matrix (rows)")
    assert struct.unpack(">II", image.encoded_image_string[16:24]) == (image.width, image.height)
    (event,) = found.Histograms("block1/kernel")
    value = event.histogram_value
    assert (value.min, value.max, value.num, value.sum, value.sum_squares) == (0, 1, 3, 2, 2)
    assert sum(value.bucket) == 3
    assert found.Tags()["histograms"] == ["block1/kernel", "large"]

    (text,) = found.Tensors("plateau")
    assert text.tensor_proto.string_val[0].decode() == "learning rate × 0.1"
    assert found.SummaryMetadata("plateau").plugin_data.plugin_name == "text"


def test_of_a_large_tensor_some_values_show_its_form(folder):
    (event,) = read(folder / "validation").Histograms("large")
    value = event.histogram_value
    assert 2**15 < value.num <= 2**16
    assert value.sum / value.num == pytest.approx(0, abs=0.02)
    assert value.sum_squares / value.num == pytest.approx(1, abs=0.03)


def hyperparameters(found: EventAccumulator, kind: str) -> HParamsPluginData:
    return HParamsPluginData.FromString(found.SummaryMetadata(f"_hparams_/{kind}").plugin_data.content)


def test_hyperparameters(folder):
    found = read(folder / "validation")
    start = hyperparameters(found, "session_start_info").session_start_info
    assert start.hparams["optimizer.learning_rate"].number_value == 0.1
    assert start.hparams["data.augment.flip"].bool_value is True
    assert start.hparams["run.name"].string_value == "é"
    assert start.group_name == "one"
    assert hyperparameters(found, "session_end_info").session_end_info.status == 1  # success


@pytest.fixture
def clock(monkeypatch):
    """Moves on by itself: files of one second and process would have one name."""
    seconds = itertools.count(1_700_000_000, 10)
    monkeypatch.setattr("distxcept.report.writers.tensorboard.time.time", lambda: next(seconds))


def test_what_a_resumed_run_does_again_is_shown_once(tmp_path, clock):
    """Killed after update 10, with its last snapshot after 5."""
    for done, last, summary in ((0, 10, {}), (5, 12, {"update": 12})):
        writer = TensorBoardWriter(About("one", tmp_path, {}, updates_done=done))
        for step in range(done + 1, last + 1):
            writer.scalars("train", step, {"loss": done + step / 100})
        for step in (done, last):
            writer.scalars("validation", step, {"loss": done + step / 100})
        writer.close(summary)
    losses = {part: read(tmp_path / "tensorboard" / part).Scalars("loss") for part in ("train", "validation")}
    assert [event.step for event in losses["train"]] == list(range(1, 13))
    assert [round(event.value) for event in losses["train"]] == [0] * 5 + [5] * 7
    assert [event.step for event in losses["validation"]] == [0, 5, 12]
    found = read(tmp_path / "tensorboard" / "validation")
    assert hyperparameters(found, "session_end_info").session_end_info.status == 1


def test_telemetry_of_a_resumed_run_is_shown_once(tmp_path, clock):
    for done, last in ((0, 10), (5, 12)):
        files = TelemetryFiles(tmp_path, rank=1, ranks=2, tensorboard=True)
        files.open(done)
        for update in range(done + 1, last + 1):
            files.write(sample(update), [])
        files.close()
    events = read(tmp_path / "tensorboard" / "telemetry-rank-1").Scalars("host/rss_gib")
    assert [event.step for event in events] == list(range(1, 13))


def test_a_run_that_may_go_on_has_no_end(tmp_path):
    """TensorBoard would keep this one, and show a run that was done later as failed."""
    TensorBoardWriter(About("one", tmp_path, {}, updates_done=0)).close({})
    tags = read(tmp_path / "tensorboard" / "validation").PluginTagToContent("hparams")
    assert list(tags) == ["_hparams_/session_start_info"]


def scalar_tags(address: str) -> dict:
    """Empty as long as it has not read the files."""
    with urlopen(f"{address}data/plugin/scalars/tags", timeout=60) as answer:
        return json.load(answer)


def test_the_server_opens_what_was_written(folder):
    """`tensorboard --logdir`, asked as its page asks."""
    program = str(Path(sys.executable).with_name("tensorboard"))
    command = [program, "--logdir", str(folder), "--port", "0", "--host", "127.0.0.1", "--load_fast=false"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            said = (re.search(r"http://127\.0\.0\.1:\d+/", line) for line in server.stderr or ())
            address = next(found[0] for found in said if found)
            deadline = time.monotonic() + 120
            while not (tags := scalar_tags(address)) and time.monotonic() < deadline:
                time.sleep(0.2)
        finally:
            server.kill()  # asked to end, it writes to a pipe nobody reads by then, and may go on serving
    assert {"train", "validation"} <= set(tags) and "loss" in tags["train"]
