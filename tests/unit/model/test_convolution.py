"""A virtual batch has the same values in any micro batch, bit for bit, and its convolutions have their true gradients.

Undivided, TensorFlow's plain kernels break the first; oneDNN's, which it takes by itself on some processors, do not.
"""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from distxcept.model.batchnorm import VirtualBatchNormalizer
from distxcept.model.convolution import convolve
from distxcept.model.initial import initial_value
from distxcept.model.xception import Xception

VIRTUAL = 3


@pytest.mark.parametrize("fused", [True, False])
def test_a_sample_has_the_same_features_in_any_micro_batch(fused: bool) -> None:
    model = Xception(classes=5, width=0.5, on_cpu=True)
    images = np.random.default_rng(5).integers(0, 256, (4 * VIRTUAL, 96, 96, 3)).astype(np.float32)
    weights = {p.name: tf.constant(initial_value(p, seed=1)) for p in model.parameters}

    def features(micro: int) -> np.ndarray:
        @tf.function(autograph=False)
        def forward(x: tf.Tensor) -> tf.Tensor:
            groups = micro // VIRTUAL
            normalize = VirtualBatchNormalizer(tf.ones([groups, VIRTUAL]), fused=groups * fused)
            for block in model.blocks:
                x = model.run_block(block, x, weights, normalize)
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

    def of(run: Callable[[], list[tf.Tensor]]) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            y = tf.concat(run(), axis=0)
            loss = tf.reduce_sum(tf.sin(y))
        return [y, *tape.gradient(loss, [x, kernel])]

    wanted = of(lambda: [tf.nn.conv2d(x, kernel, stride, padding)])
    for groups in (1, 3):
        form = (stride, padding, groups)
        found = of(lambda form=form: convolve(x, kernel, *form))
        for one, other in zip(wanted, found, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("dtype", "multiplies"), [(tf.float32, True), (tf.float16, False)])
def test_what_is_computed_as_matrix_products(dtype: tf.DType, multiplies: bool) -> None:
    """Forward and both gradients of a window of one pixel; of a larger one the gradient of the kernel."""

    def operations(size: int, stride: int) -> Counter[str]:
        @tf.function(autograph=False)
        def run(x: tf.Tensor, kernel: tf.Tensor, dy: tf.Tensor) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch([x, kernel])
                (y,) = convolve(x, kernel, stride, "VALID", 1)
            return tape.gradient(y, [x, kernel], dy)

        out = (8 - size) // stride + 1
        shapes = [(2, 8, 8, 4), (size, size, 4, 5), (2, out, out, 5)]
        graph = run.get_concrete_function(*(tf.TensorSpec(shape, dtype) for shape in shapes)).graph
        kinds = Counter(operation.type for operation in graph.get_operations())
        return Counter({kind: n for kind, n in kinds.items() if kind.startswith(("Conv2D", "MatMul"))})

    convolution = {"Conv2D": 1, "Conv2DBackpropInput": 1, "Conv2DBackpropFilter": 1}
    pointwise = {"MatMul": 3}
    strided = {"Conv2D": 1, "Conv2DBackpropInput": 1, "MatMul": 1}
    window = {"Conv2D": 1, "Conv2DBackpropInput": 1, "MatMul": 9}
    assert operations(1, 1) == (pointwise if multiplies else convolution)
    assert operations(1, 2) == (strided if multiplies else convolution)
    assert operations(3, 1) == (window if multiplies else convolution)
    assert operations(3, 2) == convolution
