"""The saver: in the background from a copy, one at a time, and failures that are told before they end the run."""

import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from distxcept.config.schema import Config
from distxcept.errors import SavingError
from distxcept.training.events import Observer
from distxcept.training.progress import Progress
from distxcept.training.saving import Saver


class Told(Observer):
    def __init__(self):
        self.kinds: list[str] = []
        self.messages: list[str] = []

    def happened(self, kind, message, **details):
        self.kinds.append(kind)
        self.messages.append(message)


class Weights:
    def __init__(self):
        self.value = np.zeros(4, np.float32)

    def read(self):
        return {"weights/a": self.value.copy()}


def saver_of(folder: Path, **checkpoint) -> tuple[Saver, Weights, Told]:
    config = Config.model_validate(
        {"data": {"train": {"kind": "synthetic", "samples": 10, "classes": 2}}, "checkpoint": checkpoint}
    )
    weights, told = Weights(), Told()
    training = SimpleNamespace(
        config=config,
        identity={"data": "d"},
        engine=SimpleNamespace(is_chief=True, exchange=lambda message: [message]),
        update=SimpleNamespace(state=weights),
        plan=SimpleNamespace(updates_per_epoch=4),
        train=SimpleNamespace(class_names=("a", "b")),
    )
    return Saver(training, folder, told), weights, told


def test_training_goes_on_while_a_copy_is_written(tmp_path, monkeypatch):
    saver, weights, told = saver_of(tmp_path)
    go_on = threading.Event()
    real = saver.store.save
    monkeypatch.setattr(saver.store, "save", lambda *a, **k: go_on.wait(60) and real(*a, **k))
    weights.value[:] = 1
    saver.save(Progress(update=6))
    weights.value[:] = 2  # the next update, before anything is on the disk
    assert saver.store.updates() == []
    assert not saver.due(7)
    go_on.set()
    saver.wait()
    snapshot = saver.store.choose().snapshot
    assert (snapshot.tensors()["weights/a"] == 1).all()
    assert snapshot.state["position"] == {"epoch": 1, "next_update": 2}
    assert snapshot.state["versions"]["tensorflow"]
    assert told.kinds == ["saved"]


def test_the_next_save_waits_for_the_last(tmp_path, monkeypatch):
    saver, _, _ = saver_of(tmp_path)
    running = []
    real = saver.store.save

    def alone(*arguments, **options):
        running.append(1)
        assert len(running) == 1
        real(*arguments, **options)
        running.pop()
        return saver.store.path(arguments[0])

    monkeypatch.setattr(saver.store, "save", alone)
    for update in range(1, 6):
        saver.save(Progress(update=update))
    saver.wait()
    assert saver.store.updates() == [5, 4, 3]


def test_the_same_update_is_written_once(tmp_path):
    saver, _, told = saver_of(tmp_path)
    saver.save(Progress(update=3))
    saver.save_last(Progress(update=3))
    assert told.kinds == ["saved"]


def failing(saver: Saver, monkeypatch) -> dict:
    disk = {"full": True}
    real = saver.store.save

    def save(*arguments, **options):
        if disk["full"]:
            raise OSError(28, "No space left on device")
        return real(*arguments, **options)

    monkeypatch.setattr(saver.store, "save", save)
    return disk


def test_failures_are_told_and_one_success_forgets_them(tmp_path, monkeypatch):
    saver, _, told = saver_of(tmp_path, max_failures=3)
    disk = failing(saver, monkeypatch)
    for update in (1, 2):
        saver.save(Progress(update=update))
        saver.wait()
    assert told.kinds == ["save_failed"] * 2
    assert "no snapshot of update 2 ([Errno 28] No space left on device)" in told.messages[1]
    assert not saver.gave_up
    disk["full"] = False
    saver.save_last(Progress(update=2))
    assert saver.store.choose().snapshot.update == 2
    disk["full"] = True
    for update in (3, 4):
        saver.save(Progress(update=update))
    saver.wait()
    assert not saver.gave_up
    saver.save(Progress(update=5))
    saver.wait()
    assert saver.gave_up


def test_a_last_save_that_fails_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    saver, _, _ = saver_of(tmp_path)
    failing(saver, monkeypatch)
    with pytest.raises(
        SavingError, match=r"after update 9 could not be saved: .*No space.*run the same command"
    ):
        saver.save_last(Progress(update=9))
