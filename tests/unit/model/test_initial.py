"""Initial values are a promise: a run started anew years later starts from the same weights."""

import hashlib

import keras
import numpy as np
import pytest

from distxcept.model.initial import initial_value
from distxcept.model.layout import Parameter
from distxcept.model.xception import Xception

MODEL = Xception(classes=5, width=0.0625, middle_blocks=1)
BY_NAME = {p.name: p for p in MODEL.parameters}

PINNED = {
    ("block1_conv1/kernel", 0): "cb5ddc4c29344083",
    ("block2_residual/kernel", 0): "19a4b5f0aab9f93e",
    ("block5_sepconv2/depthwise_kernel", 0): "47ff63db6474f18f",
    ("predictions/kernel", 0): "255c5cfb2ad7b60a",
    ("predictions/kernel", 1): "03dccce753c574d4",
}


@pytest.mark.parametrize(("name", "seed"), PINNED)
def test_values_never_change(name: str, seed: int):
    value = initial_value(BY_NAME[name], seed)
    assert value.dtype == np.float32
    assert hashlib.sha256(value.tobytes()).hexdigest()[:16] == PINNED[name, seed]


def test_kind_decides_the_values():
    for parameter in MODEL.parameters:
        _check_spread(parameter)


def _check_spread(parameter: Parameter) -> None:
    value = initial_value(parameter, 0, np.float64)
    assert value.shape == parameter.shape and value.dtype == np.float64
    if parameter.decays:
        # Keras' own Glorot rule tells the limit.
        glorot = keras.initializers.GlorotUniform(seed=0)
        keras_spread = np.abs(np.asarray(glorot((*parameter.shape[:-2], 64, 64)))).max()
        fans = parameter.shape[-2] + parameter.shape[-1]
        limit = keras_spread * np.sqrt(128 / fans)
        assert 0.8 * limit < np.abs(value).max() <= 1.001 * limit
        assert abs(value.mean()) < 4 * limit / np.sqrt(3 * value.size)
    else:
        ones = parameter.kind in ("gamma", "moving_variance")
        assert np.all(value == (1.0 if ones else 0.0))


def test_precisions_start_from_the_same_values():
    parameter = BY_NAME["block14_sepconv1/pointwise_kernel"]
    double = initial_value(parameter, 0, np.float64)
    assert np.array_equal(initial_value(parameter, 0), double.astype(np.float32))


def test_no_two_tensors_are_alike():
    kernels = [initial_value(p, seed).ravel()[:8] for p in MODEL.parameters if p.decays for seed in (0, 1)]
    assert len({kernel.tobytes() for kernel in kernels}) == len(kernels)
