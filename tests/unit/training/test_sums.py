"""What the sums of an update start from."""

import tensorflow as tf

from distxcept.model.layout import Parameter
from distxcept.model.packs import make_pack
from distxcept.model.precision import PRECISIONS
from distxcept.training.accumulate import Accumulator, Sums


def test_sums_start_from_zeros_that_are_no_constants_of_the_graph():
    """A constant would stay in memory for ever beside the sums, and a rank that sums one over the ranks asks only once."""
    kernel, moving = (
        Parameter("kernel", (64, 128), "kernel"),
        Parameter("norm/moving_mean", (5,), "moving_mean"),
    )
    packs = [make_pack("kernels", [kernel])], [make_pack("moving", [moving])]
    accumulator = Accumulator(None, None, PRECISIONS["float32"], *packs, fixed=[])
    known: list = []

    @tf.function
    def traced(key: tf.Tensor) -> Sums:
        sums = accumulator.zeros(key)
        known.extend(tf.get_static_value(tensor) for tensor in tf.nest.flatten(sums))
        return sums

    sums = traced(tf.constant(-7, tf.int64))
    assert known == [None] * 3
    assert [tensor.shape for tensor in tf.nest.flatten(sums)] == [[64 * 128], [16], [3]]
    assert not any(tf.reduce_any(tensor != 0) for tensor in tf.nest.flatten(sums))
