"""Class weights."""

from types import SimpleNamespace

import numpy as np
import pytest

from distxcept.config.schema import Config
from distxcept.errors import ConfigError
from distxcept.training.build import class_weights


def config(wanted) -> Config:
    data = {"train": {"kind": "synthetic", "samples": 8, "classes": 2}}
    return Config.model_validate({"data": data, "model": {"class_weights": wanted}})


def source(labels):
    labels = np.array(labels, np.int32)
    return SimpleNamespace(labels=labels, class_names=("cat", "dog"))


def test_balanced_weights_average_to_one_over_the_samples():
    weights = class_weights(config("balanced"), source([0, 0, 0, 1]), 2)
    assert weights == pytest.approx([2 / 3, 2.0])


def test_a_label_out_of_range_has_no_weight():
    """Such a sample is bad, and counted as that when it is read."""
    assert class_weights(config("balanced"), source([0, -1, 0, 0, 1, -1]), 2) == pytest.approx([2 / 3, 2.0])


def test_weights_by_name():
    assert class_weights(config({"dog": 3.0}), source([0, 1]), 2) == pytest.approx([1.0, 3.0])
    with pytest.raises(ConfigError, match="names the class 'cow'; the data has cat, dog"):
        class_weights(config({"cow": 3.0}), source([0, 1]), 2)
