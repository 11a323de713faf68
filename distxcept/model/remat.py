"""Rematerialisation: a block keeps its input alone, and computes the rest again when its gradient is wanted.

A block is a function of its input and its weights, with its batch-norm statistics among the outputs. (A function that
closed over its weights would yield no gradient for them, and a correct loss.)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from distxcept.model.batchnorm import Statistics, VirtualBatchNormalizer
from distxcept.model.layout import Block

RunBlock = Callable[[Block, tf.Tensor, Mapping[str, tf.Tensor], Any], tf.Tensor]


def rematerialized(function: Callable[..., Sequence[tf.Tensor]]) -> Callable[..., Sequence[tf.Tensor]]:
    """`function(x, *others)`, whose inner values do not wait in memory for the backward pass."""

    @tf.custom_gradient
    def run(x: tf.Tensor, *others: tf.Tensor) -> tuple[Sequence[tf.Tensor], Callable[..., list]]:
        def gradient(*upstream: tf.Tensor) -> list:
            # Without the gate all blocks would be computed again as soon as the forward pass is done, side by side.
            with tf.control_dependencies(upstream[:1]):
                inputs = [tf.identity(x), *others]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(inputs)
                outputs = function(*inputs)
            return tape.gradient(outputs, inputs, upstream)

        return function(x, *others), gradient

    return run


def run_rematerialized(
    run_block: RunBlock,
    block: Block,
    x: tf.Tensor,
    weights: Mapping[str, tf.Tensor],
    normalize: VirtualBatchNormalizer,
) -> tf.Tensor:
    """Traced, replica context. What `run_block` computes; the statistics are left in `normalize` as ever."""
    names = [parameter.name for parameter in block.parameters()]
    layers: dict[str, Statistics] = {}

    def function(x: tf.Tensor, *values: tf.Tensor) -> tuple[tf.Tensor, ...]:
        inner = normalize.without_sums()
        y = run_block(block, x, dict(zip(names, values, strict=True)), inner)
        layers.update(inner.sums)
        return (y, *(tensor for sums in inner.sums.values() for tensor in sums[:2]))

    y, *found = rematerialized(function)(x, *(weights[name] for name in names))
    pairs = zip(found[::2], found[1::2], strict=True)
    for (name, sums), (mean, variance) in zip(layers.items(), pairs, strict=True):
        normalize.sums[name] = sums._replace(mean=mean, variance=variance)
    return y
