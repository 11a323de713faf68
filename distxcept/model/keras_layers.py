"""The two layers that take the place of Keras' own: batch norm by virtual batches, dropout by keys.

They have no weights and no state. What they need comes beside Keras' arguments, for the forward pass that runs.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from distxcept.model.batchnorm import EPSILON, Normalizer, normalize_by_moving
from distxcept.model.xception import dropout


class Pass(NamedTuple):
    """What the layers of the copy need beside what Keras hands them."""

    weights: Mapping[str, tf.Tensor]
    normalize: Normalizer
    noise: Iterator[tf.Tensor]
    """Of each dropout, in the order in which they run."""


# Replicas are traced in threads of their own.
_now: ContextVar[Pass | None] = ContextVar("forward pass", default=None)


@contextmanager
def running(forward: Pass) -> Iterator[None]:
    token = _now.set(forward)
    try:
        yield
    finally:
        _now.reset(token)


class Norm(keras.layers.Layer):
    def __init__(self, key: str, epsilon: float, frozen: bool, **kwargs: Any):
        super().__init__(**kwargs)
        self.key, self.epsilon, self.frozen = key, epsilon, frozen

    def call(self, inputs: tf.Tensor, training: bool | None = None, mask: Any = None) -> tf.Tensor:
        now = _now.get()
        if now is None:  # the copy is being put together
            return inputs
        mean = now.weights[f"{self.key}/moving_mean"]
        usual = {"gamma": tf.ones_like(mean), "beta": tf.zeros_like(mean)}  # with scale=False, center=False
        weights = {f"{self.key}/{kind}": value for kind, value in usual.items()} | dict(now.weights)
        if self.frozen or not training:
            return normalize_by_moving(self.key, inputs, weights, self.epsilon)
        shape = inputs.shape
        images = tf.reshape(inputs, [shape[0], prod(shape[1:-1]), 1, shape[-1]])
        y = now.normalize(self.key, inputs if len(shape) == 4 else images, weights, self.epsilon)
        return tf.reshape(y, shape)


class KeyedDropout(keras.layers.Layer):
    def __init__(self, rate: float, noise_shape: tuple[int | None, ...] | None, **kwargs: Any):
        super().__init__(**kwargs)
        self.rate, self.noise_shape = rate, noise_shape

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        now = _now.get()
        if now is None or not training or not self.rate:
            return inputs
        if isinstance(now.normalize, Rehearsal):
            wanted = self.noise_shape or [None] * len(inputs.shape)
            now.normalize.noise_shapes.append(
                tuple(own or there for own, there in zip(wanted[1:], inputs.shape[1:], strict=True))
            )
            return inputs
        return dropout(inputs, self.rate, next(now.noise))


class Rehearsal:
    """Stands for the batch norm, and writes down who comes by."""

    def __init__(self) -> None:
        self.norms: list[str] = []
        self.noise_shapes: list[tuple[int, ...]] = []

    def __call__(
        self, name: str, x: tf.Tensor, weights: Mapping[str, tf.Tensor], epsilon: float = EPSILON
    ) -> tf.Tensor:
        self.norms.append(name)
        return x
