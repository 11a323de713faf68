"""TF32 and determinism are settings of the process: every training sets both, whatever the one before had."""

import time

import pytest
import tensorflow as tf

from distxcept.cluster import Placement
from distxcept.config.schema import Config, EngineSection
from distxcept.engines import create_engine, devices
from distxcept.engines.numerics import clock, is_deterministic, set_numerics


@pytest.fixture(autouse=True)
def default_afterwards(monkeypatch):
    monkeypatch.delenv("TF_DETERMINISTIC_OPS", raising=False)
    yield
    set_numerics(EngineSection(deterministic="off"))


def in_effect() -> tuple[bool, bool]:
    return tf.config.experimental.tensor_float_32_execution_enabled(), is_deterministic()


def test_each_training_sets_both():
    for section, expected in (
        (EngineSection(), (True, False)),
        (EngineSection(reduction="ordered"), (False, True)),
        (EngineSection(), (True, False)),
        (EngineSection(tf32="off"), (False, False)),
        (EngineSection(deterministic="on"), (True, True)),
        (EngineSection(tf32="on", deterministic="off"), (True, False)),
    ):
        set_numerics(section)
        assert in_effect() == expected, section


@pytest.mark.parametrize(
    ("value", "switch", "expected"),
    [
        ("1", "auto", True),
        ("true", "auto", True),
        ("0", "auto", False),
        ("1", "off", False),
        ("0", "on", True),
    ],
)
def test_the_variable_of_tensorflow_wins_over_auto(monkeypatch, value, switch, expected):
    monkeypatch.setenv("TF_DETERMINISTIC_OPS", value)
    set_numerics(EngineSection(deterministic=switch))
    assert is_deterministic() == expected


@pytest.mark.parametrize("name", ["single", "mirrored"])
def test_an_engine_comes_with_its_settings(monkeypatch, name):
    monkeypatch.setattr(devices, "prepare_devices", lambda *_, **__: ["CPU:0"])
    create_engine(EngineSection(name=name, deterministic="on", tf32="off"), Placement(launcher="local"))
    assert in_effect() == (False, True)


@pytest.mark.parametrize("deterministic", ["off", "on"])
def test_the_clock_runs_with_and_without_determinism(deterministic):
    set_numerics(EngineSection(deterministic=deterministic))
    traced = tf.function(clock, autograph=False)
    before = time.time()
    first, second = float(traced()), float(traced())
    assert before <= first <= second <= time.time()


def test_a_trial_uses_the_settings_of_the_run(monkeypatch):
    """The trial itself would need a training; that it sets them is seen at the first thing it does after."""
    from distxcept.training import trial

    class Reached(Exception):
        pass

    def stop(*_, **__):
        raise Reached(in_effect())

    monkeypatch.setattr(devices, "prepare_devices", stop)
    train = {"kind": "synthetic", "samples": 8, "classes": 2}
    config = Config.model_validate({"data": {"train": train}, "engine": {"reduction": "ordered"}})
    request = trial.Request(
        config.model_dump(mode="json", by_alias=True), 2, False, 1, False, "CPU:0", 1, None, 1
    )
    with pytest.raises(Reached, match=r"\(False, True\)"):
        trial.run_trial(request)
