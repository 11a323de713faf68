"""Xception's forward pass: a pure function over plain tensors, walking the layout.

It takes its weights as arguments and returns the batch-norm statistics beside the logits. So a gradient is taken over
tensors, nothing is assigned while micro steps run, and a block can be rematerialised.
"""

from collections.abc import Mapping

import tensorflow as tf

from distxcept.model.batchnorm import Activations, Normalizer, VirtualBatchNormalizer
from distxcept.model.convolution import convolve
from distxcept.model.layout import HEAD, Block, Convolution, Layout
from distxcept.model.remat import run_rematerialized


class Xception(Layout):
    """The network of the layout, ready to run."""

    def __init__(
        self,
        *,
        classes: int,
        width: float = 1.0,
        dropout: float = 0.0,
        middle_blocks: int = 8,
        on_cpu: bool = False,
    ):
        """`on_cpu`: convolutions as a CPU wants them, see convolution.py."""
        super().__init__(classes=classes, width=width, middle_blocks=middle_blocks)
        self.dropout = dropout
        self.on_cpu = on_cpu

    def __call__(
        self,
        images: tf.Tensor,
        weights: Mapping[str, tf.Tensor],
        normalize: Normalizer,
        *,
        dtype: tf.DType,
        dropout_noise: tf.Tensor | None = None,
        remat: bool = False,
    ) -> tf.Tensor:
        """Traced, replica context. Logits of uint8 images; the statistics are left in `normalize`.

        `dropout_noise` is what the method of that name draws; None runs without dropout.
        With `remat` the backward pass computes each block again instead of finding its inner values in memory.
        """
        x = tf.cast(images, dtype) / 127.5 - 1.0
        for block in self.blocks:
            if remat:
                assert isinstance(normalize, VirtualBatchNormalizer)
                x = run_rematerialized(self.run_block, block, x, weights, normalize)
            else:
                x = self.run_block(block, x, weights, normalize)
        x = tf.reduce_mean(x, axis=[1, 2])
        if dropout_noise is not None:
            x = dropout(x, self.dropout, dropout_noise)
        logits = tf.matmul(x, tf.cast(weights[f"{HEAD}/kernel"], dtype))
        return logits + tf.cast(weights[f"{HEAD}/bias"], dtype)

    def run_block(
        self, block: Block, x: tf.Tensor, weights: Mapping[str, tf.Tensor], normalize: Normalizer
    ) -> tf.Tensor:
        y = x
        for convolution in block.convolutions:
            y = self._run_convolution(convolution, y, weights, normalize)
        if block.pool:
            y = tf.nn.max_pool2d(y, 3, 2, "SAME")
        if block.shortcut:
            return y + self._run_convolution(block.shortcut, x, weights, normalize)
        return y + x if block.add_input else y

    def _run_convolution(
        self, layer: Convolution, x: tf.Tensor, weights: Mapping[str, tf.Tensor], normalize: Normalizer
    ) -> tf.Tensor:
        if layer.relu_before:
            x = tf.nn.relu(x)
        if layer.separable:
            depthwise = tf.cast(weights[f"{layer.name}/depthwise_kernel"], x.dtype)
            x = tf.nn.depthwise_conv2d(x, depthwise, [1, 1, 1, 1], "SAME")
        kernel = weights[f"{layer.name}/{'pointwise_kernel' if layer.separable else 'kernel'}"]
        kernel = tf.cast(kernel, x.dtype)
        if self.on_cpu:
            groups = normalize.groups if isinstance(normalize, VirtualBatchNormalizer) else 1
            y: Activations = convolve(x, kernel, layer.stride, layer.padding, groups)
        else:
            y = tf.nn.conv2d(x, kernel, layer.stride, layer.padding)
        x = normalize(layer.norm, y, weights)
        return tf.nn.relu(x) if layer.relu_after else x

    def dropout_noise(self, seeds: tf.Tensor, samples: int) -> tf.Tensor | None:
        """Traced, replica context. `seeds` is [virtual batches, 2]: one random stream for each virtual batch of the samples.

        Drawn apart from the forward pass, because XLA would draw other numbers from the same seeds.
        """
        return draw_noise(seeds, samples, self.features) if self.dropout else None


def draw_noise(seeds: tf.Tensor, samples: int, *features: int) -> tf.Tensor:
    """Uniform numbers that depend on the virtual batch's seed and the place in it, not on who computes them."""
    shape = [samples // seeds.shape[0], *features]
    return tf.concat(
        [tf.random.stateless_uniform(shape, seeds[k], alg="philox") for k in range(seeds.shape[0])], axis=0
    )


def dropout(x: tf.Tensor, rate: float, noise: tf.Tensor) -> tf.Tensor:
    return tf.where(noise >= rate, x / tf.constant(1.0 - rate, x.dtype), tf.zeros_like(x))
