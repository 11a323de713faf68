"""What reaches TensorBoard, Weights & Biases and MLflow, and what happens when it does not."""

import io
import struct
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from run_folders import started

from distxcept.report.drawings import confusion_png, samples_png
from distxcept.report.profiling import Profile
from distxcept.report.writers import WRITERS, About, open_writer
from distxcept.report.writers import observer as observer_module
from distxcept.report.writers.observer import Written
from distxcept.training.events import TrainRecord, ValidationRecord

FOUND = {
    "update": 7, "classes": ["a", "b"], "confusion": [[0, 0, 2], [1, 0, 1]], "best": [],
    "worst": [{"label": 1, "predicted": 0, "confidence": 0.75, "thumbnail": None}],
}  # fmt: skip
TRAINED = TrainRecord(
    epoch=0, update=5, samples=160, loss=float("nan"), accuracy=0.5, learning_rate=0.1, gradient_norm=1.0,
    images_per_second=10.0, data_wait=0.0, peak_memory=1, skipped_updates=0,
)  # fmt: skip
VALIDATED = ValidationRecord(
    epoch=0, update=5, samples=50, loss=0.5, accuracy=0.5, top5_accuracy=1.0, best=True
)


class Recorder:
    def __init__(self, fails: str = ""):
        self.calls: list[tuple] = []
        self._fails = fails

    def __getattr__(self, name):
        def call(*arguments):
            if name == self._fails:
                raise ConnectionError("the\nserver is gone")
            self.calls.append((name, *arguments))

        return call


def written(recorders, folder=Path(), **options) -> tuple[Written, list[str]]:
    told: list[str] = []
    about = About("x", folder, {"batch.global": 32})
    return Written(
        list(recorders), about, warn=told.append, opening=lambda name, _: recorders[name], **options
    ), told


def play(observer: Written) -> None:
    with observer:
        observer.started(started())
        observer.trained(TRAINED)
        observer.validated(VALIDATED)
        observer.validated(VALIDATED)
        observer.happened("saved", "snapshot")
        observer.happened("plateau", "slower", update=5)
        observer.described(FOUND)
        observer.ended({"update": 7})


def test_what_a_writer_gets():
    recorder = Recorder()
    observer, told = written({"one": recorder}, read_weights=lambda: {"w": np.ones(3)})
    play(observer)
    assert told == []
    # Histograms no more than once a minute; no NaN; no saved snapshots.
    assert [call[0] for call in recorder.calls] == [
        "scalars", "scalars", "histograms", "scalars", "text", "image", "image", "close"
    ]  # fmt: skip
    part, step, values = recorder.calls[0][1:]
    assert (part, step) == ("train", 5)
    assert "loss" not in values
    assert "update" not in values
    assert values["accuracy"] == 0.5
    assert recorder.calls[-1] == ("close", {"update": 7})


def test_histograms_of_a_run_without_evaluations(monkeypatch):
    """Not at the first record, then once a minute; where there are evaluations, at none of the records."""
    clock = iter([100.0, 130.0, 160.0])
    monkeypatch.setattr(observer_module.time, "monotonic", lambda: next(clock))
    for samples, expected in ((0, [2, 4]), (50, [])):
        recorder, read = Recorder(), []
        observer, told = written({"one": recorder}, read_weights=lambda read=read: read.append(1) or {})
        with observer:
            observer.started(started(validation_samples=samples))
            for update in (1, 2, 3, 4):
                observer.trained(replace(TRAINED, update=update))
        assert [call[1] for call in recorder.calls if call[0] == "histograms"] == expected
        assert len(read) == len(expected) and told == []


@pytest.mark.parametrize("fails", ["scalars", "histograms", "image", "text", "close"])
def test_a_writer_that_fails_is_told_once_and_left_out(fails):
    broken, whole = Recorder(fails), Recorder()
    observer, told = written({"broken": broken, "whole": whole})
    play(observer)
    assert told == [
        "warning: nothing more goes to broken (ConnectionError: the server is gone); the training goes on"
    ]
    assert whole.calls[-1][0] == "close"


def test_nothing_is_opened_before_the_training_starts():
    one = Recorder()
    observer, _ = written({"one": one}, Path("/nowhere"))
    with observer:
        observer.trained(TRAINED)
    assert one.calls == []


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_named_with_its_command(name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, name, None)
    told: list[str] = []
    with Written([name], About("x", tmp_path, {}), warn=told.append) as observer:
        observer.started(started())
    assert len(told) == 1
    assert f"pip install 'distxcept[{name}]'" in told[0]


@pytest.fixture
def packages(monkeypatch):
    """Stand-ins that accept what the real ones' documentation says they accept, and keep it."""
    calls: list[tuple] = []

    class Run:
        def __init__(self):
            self.summary = types.SimpleNamespace(update=lambda values: calls.append(("summary", values)))
            self.info = types.SimpleNamespace(run_id="abc")

        def log(self, values):
            calls.append(("log", values))

        def define_metric(self, name, step_metric=None):
            calls.append(("define", name, step_metric))

        def finish(self, exit_code):
            calls.append(("finish", exit_code))

    def init(*, name, id, resume, dir, config):
        calls.append(("init", name, id, resume, dir, config))
        return Run()

    def start_run(*, run_id=None, run_name=None):
        calls.append(("start", run_id, run_name))
        return Run()

    wandb = types.SimpleNamespace(
        init=init,
        Image=lambda image, caption: ("image", image.size, caption),
        Histogram=lambda values: ("histogram", values.tolist()),
    )
    mlflow = types.SimpleNamespace(
        start_run=start_run,
        log_params=lambda values: calls.append(("params", values)),
        log_metrics=lambda values, step: calls.append(("metrics", values, step)),
        log_image=lambda image, name: calls.append(("image", image.size, name)),
        end_run=lambda status: calls.append(("end", status)),
    )
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    return calls


def use(name: str, folder: Path, summary: dict) -> None:
    writer = open_writer(name, About("x", folder, {f"key{k:03d}": k for k in range(150)}))
    writer.scalars("train", 5, {"loss": 0.5, "accuracy": 0.25})
    writer.scalars("validation", 5, {"loss": 0.75})
    writer.image("most wrong", 5, confusion_png(FOUND) or b"", "caption")
    writer.histograms(5, {"w": np.array([1.0, np.nan, 3.0]), "empty": np.zeros(0)})
    writer.text("plateau", 5, "slower")
    writer.close(summary)


def size_of_picture() -> tuple[int, int]:
    return Image.open(io.BytesIO(confusion_png(FOUND) or b"")).size


def test_wandb_gets_every_value(packages, tmp_path):
    use("wandb", tmp_path, {"best": 0.5, "none": None})
    (_, name, identity, resume, folder, config), *after = packages
    assert (name, resume, folder) == ("x", "allow", str(tmp_path))
    assert config == {f"key{k:03d}": k for k in range(150)}
    assert len(identity) == 16
    assert after == [
        ("define", "update", None),
        ("define", "*", "update"),
        ("log", {"update": 5, "train/loss": 0.5, "train/accuracy": 0.25}),
        ("log", {"update": 5, "validation/loss": 0.75}),
        ("log", {"update": 5, "validation/most wrong": ("image", size_of_picture(), "caption")}),
        ("log", {"update": 5, "weights/w": ("histogram", [1.0, 3.0])}),
        ("summary", {"best": 0.5}),
        ("finish", 0),
    ]


def test_wandb_knows_a_run_by_its_folder(packages, tmp_path):
    use("wandb", tmp_path, {"best": 0.5})
    use("wandb", tmp_path, {})
    use("wandb", tmp_path / "other", {})
    first, again, other = (call[2] for call in packages if call[0] == "init")
    assert first == again != other
    assert [call[1] for call in packages if call[0] == "finish"] == [0, 1, 1]  # without a result it failed


def test_mlflow_gets_every_value(packages, tmp_path):
    use("mlflow", tmp_path, {"best": 0.5})
    begun, one, two, *after = packages
    assert begun == ("start", None, "x")
    assert (len(one[1]), len(two[1])) == (100, 50)  # a server takes no more at once
    assert {**one[1], **two[1]} == {f"key{k:03d}": str(k) for k in range(150)}
    assert after == [
        ("metrics", {"train_loss": 0.5, "train_accuracy": 0.25}, 5),
        ("metrics", {"validation_loss": 0.75}, 5),
        ("image", size_of_picture(), "most_wrong_5.png"),
        ("end", "FINISHED"),
    ]


def test_mlflow_goes_on_with_the_run_of_the_folder(packages, tmp_path):
    use("mlflow", tmp_path, {"best": 0.5})
    use("mlflow", tmp_path, {})
    assert [call for call in packages if call[0] == "start"] == [("start", None, "x"), ("start", "abc", None)]
    assert sum(call[0] == "params" for call in packages) == 2  # of the first start: they cannot be changed
    assert packages[-1] == ("end", "FAILED")


def test_every_writer_of_the_config_exists():
    from typing import get_args

    from distxcept.config.schema import WriterName

    assert set(get_args(WriterName)) == set(WRITERS)


@pytest.mark.parametrize(("classes", "size"), [(2, 110 + 81), (100, 801), (201, None)])
def test_confusion_png(classes, size):
    png = confusion_png(
        {"classes": [f"k{k}é漢" for k in range(classes)], "confusion": [[0, 1, 3], [1, 1, 2]]}
    )
    if size is None:
        assert png is None
        return
    assert png is not None
    assert struct.unpack(">I", png[16:20]) == (size,)


def test_samples_png():
    assert samples_png([], ["a"]) is None
    png = samples_png(FOUND["worst"] * 5, FOUND["classes"])
    assert png is not None
    assert Image.open(io.BytesIO(png)).size == (4 * 118, 2 * 146)


class Profiler:
    def __init__(self, fails=False):
        self.calls, self.fails, self.done = [], fails, 0

    def start(self, folder):
        if self.fails:
            raise RuntimeError("another one is running")
        self.calls.append(("start", self.done))

    def stop(self):
        self.calls.append(("stop", self.done))


@pytest.mark.parametrize(
    ("updates", "begins", "ends", "expected"),
    [
        ((10, 15), 0, 20, [("start", 9), ("stop", 15)]),
        ((1, 1), 0, 20, [("start", 0), ("stop", 1)]),
        ((10, 15), 12, 20, [("start", 12), ("stop", 15)]),  # gone on with in the middle
        ((10, 15), 0, 12, [("start", 9), ("stop", 12)]),  # the run ends before
        ((10, 15), 15, 20, []),
    ],
)
def test_profile(updates, begins, ends, expected, tmp_path):
    profiler = Profiler()
    told: list[str] = []
    with Profile(updates, tmp_path, told.append, profiler) as profile:
        profiler.done = begins
        profile.started(started(begins))
        for update in range(begins + 1, ends + 1):
            profiler.done = update
            profile.updated(update, 1.0, 0.5)
    assert profiler.calls == expected
    assert len(told) == 1


def test_a_profiler_that_does_not_start_is_told_once(tmp_path):
    told: list[str] = []
    with Profile((1, 2), tmp_path, told.append, Profiler(fails=True)) as profile:
        profile.started(started())
        profile.updated(1, 1.0, 0.5)
        profile.updated(2, 1.0, 0.5)
    assert told == ["no profile: another one is running"]
