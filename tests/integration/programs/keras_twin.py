"""A Keras model of the same layers as ours, built from our description of them and filled with our weights."""

import keras
import numpy as np

from distxcept.export.keras_model import keras_features
from distxcept.model.layout import HEAD, Layout


def build_twin(model: Layout, image_size: int, weights: dict[str, np.ndarray]) -> keras.Model:
    images = keras.Input((image_size, image_size, 3))
    twin = keras.Model(images, keras.layers.Dense(model.classes, name=HEAD)(keras_features(model, images)))
    for layer in twin.layers:
        for weight in layer.weights:
            weight.assign(weights[f"{layer.name}/{weight.name}"])
    return twin


def weights_of(twin: keras.Model) -> dict[str, np.ndarray]:
    return {
        f"{layer.name}/{weight.name}": np.asarray(weight) for layer in twin.layers for weight in layer.weights
    }
