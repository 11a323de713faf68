"""One device: every collective is the identity."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from distxcept.engines.base import Engine


class SingleEngine(Engine):
    name = "single"

    def __init__(self, device: str, *, jit: bool = False):
        super().__init__(jit=jit)
        self.device = device

    def devices(self) -> list[str]:
        return [self.device]

    def variable(self, value: np.ndarray, name: str) -> tf.Variable:
        with tf.device(self.device):
            return tf.Variable(value, name=name, trainable=False)

    def copies(self, variable: tf.Variable) -> list[np.ndarray]:
        return [variable.numpy()]

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        traced = tf.function(function, jit_compile=False, autograph=False)

        def call(batches: list, common: Any, **static: Any) -> Any:
            with tf.device(self.device):
                return traced(batches[0], common, **static)

        return call

    def sum(
        self, packs: Sequence[tf.Tensor], exact: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        return list(packs), list(exact)

    def gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return list(tensors)

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        pass

    def exchange(self, message: bytes) -> list[bytes]:
        return [message]
