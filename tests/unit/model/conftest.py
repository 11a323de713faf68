"""Keras' own Xception, built once, with no two weights alike."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import pytest


def randomize(model: keras.Model, seed: int = 0) -> None:
    """Batch norms start with equal values, which would hide a mix-up; this gives every weight values of its own."""
    random = np.random.default_rng(seed)
    for weight in model.weights:
        if weight.name in ("gamma", "moving_variance"):
            weight.assign(random.uniform(0.8, 1.2, weight.shape))
        elif weight.name in ("beta", "bias", "moving_mean"):
            weight.assign(random.normal(0.0, 0.05, weight.shape))


def weights_of(model: keras.Model) -> dict[str, np.ndarray]:
    """By our names, told from Keras' graph of layers: a residual convolution feeds the sum that ends its block."""
    names = {layer.name: layer.name for layer in model.layers}
    numbered = [layer.name for layer in model.layers if layer.name.startswith("conv2d")]
    norms = [layer.name for layer in model.layers if layer.name.startswith("batch_normalization")]
    for block, convolution, norm in zip((2, 3, 4, 13), numbered, norms, strict=True):
        assert model.get_layer(norm).input is model.get_layer(convolution).output
        inputs = {tensor._keras_history.operation.name for tensor in _sum_after(model, norm).input}
        assert inputs == {norm, f"block{block}_pool"}
        names |= {convolution: f"block{block}_residual", norm: f"block{block}_residual_bn"}
    return {f"{names[layer.name]}/{w.name}": np.asarray(w) for layer in model.layers for w in layer.weights}


def _sum_after(model: keras.Model, norm: str) -> keras.Layer:
    return next(node.operation for node in model.get_layer(norm)._outbound_nodes)


@pytest.fixture(scope="session")
def keras_xception() -> keras.Model:
    model = keras.applications.Xception(weights=None)
    randomize(model)
    return model


@pytest.fixture(scope="session")
def expected_weights(keras_xception: keras.Model) -> dict[str, np.ndarray]:
    return weights_of(keras_xception)
