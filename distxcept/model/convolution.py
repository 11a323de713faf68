"""Convolutions on a CPU: each virtual batch on its own, so that its values do not depend on the micro batch.

A GPU computes the whole micro batch at once: there a launch for each virtual batch would cost more than the work itself.
CPU kernels compute the rows at the end of a large product in another order than those in its middle, so a sample's values
would differ in their last bit with the samples that happen to be computed with it. Where such a value is near zero, a
ReLU turns over, and gradients of whole layers change by some percent. A virtual batch alone has the shape that the
config gives it. The backward pass turns nothing over, and takes the micro batch as a whole.

What can be said as a matrix product is computed as one. Most of Xception's convolutions have windows of one pixel, and
TensorFlow's products are faster than its convolutions, above all in the backward pass (docs/speed.md).
"""

from collections.abc import Callable

import tensorflow as tf

MULTIPLIED = (tf.float32, tf.float64)
"""Shorter numbers were not tried, and stay convolutions."""


def convolve(x: tf.Tensor, kernel: tf.Tensor, stride: int, padding: str, groups: int) -> list[tf.Tensor]:
    """Traced, for all replicas. The outputs of the virtual batches of `x`, of which it has `groups`."""
    products = x.dtype in MULTIPLIED
    form = (stride, padding, products)
    if groups == 1 and not products:
        return [output(x, kernel, *form)]

    @tf.custom_gradient
    def run(x: tf.Tensor, kernel: tf.Tensor) -> tuple[list[tf.Tensor], Callable]:
        def gradient(*upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            dy = tf.concat(upstream, axis=0) if groups > 1 else upstream[0]
            return input_gradient(x, kernel, dy, *form), kernel_gradient(x, kernel, dy, *form)

        parts = tf.split(x, groups) if groups > 1 else [x]
        return [output(part, kernel, *form) for part in parts], gradient

    return run(x, kernel)


def output(x: tf.Tensor, kernel: tf.Tensor, stride: int, padding: str, products: bool) -> tf.Tensor:
    if products and stride == 1 and _is_pointwise(kernel):
        return tf.reshape(tf.matmul(_rows(x), _matrix(kernel)), [*x.shape[:3], kernel.shape[3]])
    return tf.nn.conv2d(x, kernel, stride, padding)


def input_gradient(
    x: tf.Tensor, kernel: tf.Tensor, dy: tf.Tensor, stride: int, padding: str, products: bool
) -> tf.Tensor:
    if products and stride == 1 and _is_pointwise(kernel):
        return tf.reshape(tf.matmul(_rows(dy), _matrix(kernel), transpose_b=True), x.shape)
    return tf.raw_ops.Conv2DBackpropInput(
        input_sizes=x.shape.as_list(),
        filter=kernel,
        out_backprop=dy,
        strides=[1, stride, stride, 1],
        padding=padding,
    )


def kernel_gradient(
    x: tf.Tensor, kernel: tf.Tensor, dy: tf.Tensor, stride: int, padding: str, products: bool
) -> tf.Tensor:
    if products and _is_pointwise(kernel):
        read = x if stride == 1 else tf.nn.avg_pool2d(x, 1, stride, "VALID")
        return tf.reshape(tf.matmul(_rows(read), _rows(dy), transpose_a=True), kernel.shape)
    if products and stride == 1 and padding == "VALID":
        return _shifted_products(x, kernel, dy)
    return tf.raw_ops.Conv2DBackpropFilter(
        input=x,
        filter_sizes=kernel.shape.as_list(),
        out_backprop=dy,
        strides=[1, stride, stride, 1],
        padding=padding,
    )


def _shifted_products(x: tf.Tensor, kernel: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
    """With zeros that make `dy` as large as `x`, an offset within the window is a number of rows, and nothing is copied."""
    high, wide = kernel.shape[:2]
    padded = _rows(tf.pad(dy, [[0, 0], [0, high - 1], [0, wide - 1], [0, 0]]))
    rows, count = _rows(x), x.shape[0] * x.shape[1] * x.shape[2]
    offsets = [i * x.shape[2] + j for i in range(high) for j in range(wide)]
    parts = [tf.matmul(rows[o:], padded[: count - o], transpose_a=True) for o in offsets]
    return tf.reshape(tf.stack(parts), kernel.shape)


def _is_pointwise(kernel: tf.Tensor) -> bool:
    return kernel.shape[0] == kernel.shape[1] == 1


def _rows(x: tf.Tensor) -> tf.Tensor:
    """A row for each pixel."""
    return tf.reshape(x, [-1, x.shape[3]])


def _matrix(kernel: tf.Tensor) -> tf.Tensor:
    return tf.reshape(kernel, kernel.shape[2:])
