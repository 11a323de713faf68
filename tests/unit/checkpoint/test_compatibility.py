"""Which changes of a config let a run go on."""

import pytest

from distxcept.checkpoint.compatibility import differences, training_identity
from distxcept.config.schema import Config

BASE = {"data": {"train": {"kind": "synthetic", "samples": 10, "classes": 2}}}


def identity(changes: dict, digest: str = "d") -> dict:
    return training_identity(Config.model_validate(BASE | changes), digest)


@pytest.mark.parametrize(
    "changes",
    [
        {"run": {"epochs": 20}},
        {"run": {"name": "other", "log_every": 3}},
        {"engine": {"name": "mirrored", "devices": 2, "threads": 1}},
        {"engine": {"deterministic": "on"}},
        {"engine": {"tf32": "on"}},
        {"batch": {"micro": 32}},
        {"checkpoint": {"keep": 9}},
        {"data": BASE["data"] | {"validation": {"kind": "synthetic", "samples": 4, "classes": 2}}},
    ],
)
def test_harmless(changes):
    assert differences(identity({}), identity(changes)) == []


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"run": {"seed": 5}}, "run.seed: 0 → 5"),
        ({"optimizer": {"learning_rate": 0.1}}, "optimizer.learning_rate: 0.045 → 0.1"),
        ({"batch": {"global": 64}}, "batch.global: 32 → 64"),
        ({"batch": {"virtual": 8}}, "batch.virtual: 32 → 8"),
        ({"precision": "float64"}, "precision: float32 → float64"),
        ({"engine": {"compression": "fp16"}}, "engine.compression: none → fp16"),
        ({"engine": {"reduction": "ordered"}}, "engine.reduction: fast → ordered"),
        ({"engine": {"reduction": "ordered", "tf32": "off"}}, "engine.reduction: fast → ordered"),
        ({"engine": {"tf32": "off"}}, "engine.tf32: on → off"),
        ({"model": {"dropout": 0.1}}, "model.dropout: 0.5 → 0.1"),
    ],
)
def test_harmful(changes, key):
    assert differences(identity({}), identity(changes)) == [key]


def test_a_run_from_before_tf32_was_a_key_keeps_its_identity():
    assert "engine.tf32" not in identity({})
    assert differences(identity({"engine": {"tf32": "off"}}), identity({})) == ["engine.tf32: off → on"]


def test_other_data_is_another_training():
    assert differences(identity({}, "old"), identity({}, "new")) == ["data: old → new"]


def test_the_length_counts_where_a_cosine_ends_with_it():
    cosine = {"optimizer": {"schedule": {"kind": "cosine"}}}
    longer = cosine | {"run": {"epochs": 20}}
    assert differences(identity(cosine), identity(longer)) == ["schedule ends at: [10, None] → [20, None]"]
