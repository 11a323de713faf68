"""Xception as a Keras model, built layer by layer from the layout, with a snapshot's weights put in by name.

Plain layers only, so that the file holds no code and opens with Keras alone. It takes pixels from 0 to 255 and gives
probabilities: the normalisation is its first layer.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import layers

from distxcept.model.batchnorm import EPSILON
from distxcept.model.layout import HEAD, Block, Convolution, Layout


def build_keras_model(layout: Layout, image_size: int, weights: Mapping[str, np.ndarray]) -> keras.Model:
    images = keras.Input((image_size, image_size, 3), name="images", dtype="float32")
    x = layers.Rescaling(1.0 / 127.5, offset=-1.0, name="normalize")(images)
    x = keras_features(layout, x)
    outputs = layers.Dense(layout.classes, activation="softmax", name=HEAD)(x)
    model = keras.Model(images, outputs, name="xception")
    put_weights(model, layout, weights)
    return model


def keras_features(layout: Layout, x: Any) -> Any:
    """Everything between the normalised images and the last layer."""
    for block in layout.blocks:
        x = _block(block, x)
    return layers.GlobalAveragePooling2D(name="avg_pool")(x)


def put_weights(model: keras.Model, layout: Layout, weights: Mapping[str, np.ndarray]) -> None:
    """By layer and weight name; every parameter of the layout is placed exactly once."""
    placed = set()
    for layer in model.layers:
        for variable in layer.weights:
            name = f"{layer.name}/{variable.name}"
            variable.assign(weights[name].astype(np.float32))
            placed.add(name)
    missing = {p.name for p in layout.parameters} - placed
    assert not missing, missing


def _block(block: Block, x: Any) -> Any:
    y = x
    for convolution in block.convolutions:
        y = _convolution(convolution, y)
    if block.pool:
        y = layers.MaxPooling2D(3, strides=2, padding="same", name=f"{block.name}_pool")(y)
    if block.shortcut:
        return layers.Add(name=f"{block.name}_add")([y, _convolution(block.shortcut, x)])
    return layers.Add(name=f"{block.name}_add")([y, x]) if block.add_input else y


def _convolution(layer: Convolution, x: Any) -> Any:
    if layer.relu_before:
        x = layers.ReLU(name=f"{layer.name}_act")(x)
    options = dict(strides=layer.stride, padding=layer.padding.lower(), use_bias=False, name=layer.name)
    kind = layers.SeparableConv2D if layer.separable else layers.Conv2D
    x = kind(layer.outputs, layer.size, **options)(x)
    x = layers.BatchNormalization(epsilon=EPSILON, name=layer.norm)(x)
    return layers.ReLU(name=f"{layer.name}_after")(x) if layer.relu_after else x
