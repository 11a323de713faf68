"""Convolutions that are computed for each virtual batch on its own, so that its values do not depend on the micro batch.

Kernels compute the rows at the end of a large product in another order than those in its middle, so a sample's values
would differ in their last bit with the samples that happen to be computed with it. Where such a value is near zero, a
ReLU turns over, and gradients of whole layers change by some percent. A virtual batch alone has the shape that the
config gives it. The backward pass turns nothing over, and takes the micro batch as a whole.
"""

from collections.abc import Callable

import tensorflow as tf


def convolve(x: tf.Tensor, kernel: tf.Tensor, stride: int, padding: str, groups: int) -> list[tf.Tensor]:
    """Traced, replica context. The outputs of the virtual batches of `x`, of which it has `groups`."""
    if groups == 1:
        return [tf.nn.conv2d(x, kernel, stride, padding)]

    @tf.custom_gradient
    def run(x: tf.Tensor, kernel: tf.Tensor) -> tuple[list[tf.Tensor], Callable]:
        def gradient(*upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            whole = dict(
                out_backprop=tf.concat(upstream, axis=0), strides=[1, stride, stride, 1], padding=padding
            )
            return (
                tf.raw_ops.Conv2DBackpropInput(input_sizes=x.shape.as_list(), filter=kernel, **whole),
                tf.raw_ops.Conv2DBackpropFilter(input=x, filter_sizes=kernel.shape.as_list(), **whole),
            )

        return [tf.nn.conv2d(part, kernel, stride, padding) for part in tf.split(x, groups)], gradient

    return run(x, kernel)
