"""A Keras model of the same layers as ours, built from our description of them and filled with our weights."""

import keras
import numpy as np

from distxcept.model.layout import HEAD, Block, Convolution, Layout


def build_twin(model: Layout, image_size: int, weights: dict[str, np.ndarray]) -> keras.Model:
    inputs = keras.Input((image_size, image_size, 3))
    x = inputs
    for block in model.blocks:
        x = _block(block, x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    twin = keras.Model(inputs, keras.layers.Dense(model.classes, name=HEAD)(x))
    for layer in twin.layers:
        for weight in layer.weights:
            weight.assign(weights[f"{layer.name}/{weight.name}"])
    return twin


def weights_of(twin: keras.Model) -> dict[str, np.ndarray]:
    return {
        f"{layer.name}/{weight.name}": np.asarray(weight) for layer in twin.layers for weight in layer.weights
    }


def _block(block: Block, x):
    y = x
    for convolution in block.convolutions:
        y = _convolution(convolution, y)
    if block.pool:
        y = keras.layers.MaxPooling2D(3, 2, padding="same")(y)
    if block.shortcut:
        return keras.layers.add([y, _convolution(block.shortcut, x)])
    return keras.layers.add([y, x]) if block.add_input else y


def _convolution(convolution: Convolution, x):
    if convolution.relu_before:
        x = keras.layers.ReLU()(x)
    kind = keras.layers.SeparableConv2D if convolution.separable else keras.layers.Conv2D
    x = kind(
        convolution.outputs,
        convolution.size,
        strides=convolution.stride,
        padding=convolution.padding.lower(),
        use_bias=False,
        name=convolution.name,
    )(x)
    x = keras.layers.BatchNormalization(name=convolution.norm)(x)
    return keras.layers.ReLU()(x) if convolution.relu_after else x
