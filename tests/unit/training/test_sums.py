"""What the sums of an update start from."""

import tensorflow as tf

from distxcept.model.precision import PRECISIONS
from distxcept.training.accumulate import Accumulator, Sums


def test_sums_start_from_zeros_that_are_no_constants_of_the_graph():
    """A constant would stay in memory for ever beside the sums, and a rank that sums one over the ranks asks only once."""
    accumulator = Accumulator(None, None, PRECISIONS["float32"], ["kernel"], ["norm"], frozenset())
    weights = {"kernel": tf.ones([64, 128]), "norm/moving_mean": tf.ones([5])}
    known: list = []

    @tf.function
    def traced(key: tf.Tensor) -> Sums:
        sums = accumulator.zeros(weights, key)
        known.extend(tf.get_static_value(tensor) for tensor in tf.nest.flatten(sums))
        return sums

    sums = traced(tf.constant(-7, tf.int64))
    assert known == [None] * 3
    assert [tensor.shape for tensor in tf.nest.flatten(sums)] == [[64, 128], [10], [3]]
    assert not any(tf.reduce_any(tensor != 0) for tensor in tf.nest.flatten(sums))
