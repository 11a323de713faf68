"""A virtual batch has the same values in any micro batch, bit for bit, and its convolutions have their true gradients.

Undivided, TensorFlow's plain kernels break the first; oneDNN's, which it takes by itself on some processors, do not.
"""

import numpy as np
import pytest
import tensorflow as tf

from distxcept.model.batchnorm import VirtualBatchNormalizer
from distxcept.model.convolution import convolve
from distxcept.model.initial import initial_value
from distxcept.model.xception import Xception, run_block

VIRTUAL = 3
MODEL = Xception(classes=5, width=0.5)


@pytest.mark.parametrize("fused", [True, False])
def test_a_sample_has_the_same_features_in_any_micro_batch(fused: bool) -> None:
    images = np.random.default_rng(5).integers(0, 256, (4 * VIRTUAL, 96, 96, 3)).astype(np.float32)
    weights = {p.name: tf.constant(initial_value(p, seed=1)) for p in MODEL.parameters}

    def features(micro: int) -> np.ndarray:
        @tf.function(autograph=False)
        def forward(x: tf.Tensor) -> tf.Tensor:
            normalize = VirtualBatchNormalizer(tf.ones([micro // VIRTUAL, VIRTUAL]), fused=fused)
            for block in MODEL.blocks:
                x = run_block(block, x, weights, normalize)
            return x

        return np.concatenate([forward(images[i : i + micro]) for i in range(0, len(images), micro)])

    alone = features(VIRTUAL)
    assert alone.std() > 0.1
    for virtual_batches in (2, 4):
        assert np.array_equal(features(virtual_batches * VIRTUAL), alone)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [1, 3])
def test_values_and_gradients_are_those_of_one_convolution(size: int, stride: int, padding: str) -> None:
    random = np.random.default_rng(0)
    x, kernel = (
        tf.constant(random.normal(size=(6, 8, 7, 4))),
        tf.constant(random.normal(size=(size, size, 4, 5))),
    )

    def of(groups: int) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            y = tf.concat(convolve(x, kernel, stride, padding, groups), axis=0)
            loss = tf.reduce_sum(tf.sin(y))
        return [y, *tape.gradient(loss, [x, kernel])]

    for one, three in zip(of(1), of(3), strict=True):
        np.testing.assert_allclose(three, one, rtol=1e-12, atol=1e-12)
