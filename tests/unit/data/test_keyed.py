"""The random numbers of the graph are those of NumPy, bit for bit."""

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from distxcept.data.keyed import hashes, hashes_of, key, key_of, uniforms, uniforms_of

INT64 = st.integers(-(2**63), 2**63 - 1)
COUNTERS = st.lists(INT64, min_size=1, max_size=9).map(lambda found: np.array(found, np.int64))
SOME = np.array([0, -1, 7, 2**40, 2**63 - 1, -(2**63)], np.int64)


@given(st.integers(0, 20), st.integers(0, 2**64), INT64, COUNTERS)
def test_the_same_numbers_as_numpy(stream, seed, epoch, counters):
    of_graph = key_of(stream, seed, tf.constant(epoch, tf.int64))
    assert of_graph.dtype == tf.uint64
    assert int(of_graph) == key(stream, seed, epoch)
    assert np.array_equal(hashes_of(of_graph, counters), hashes(key(stream, seed, epoch), counters))
    found = uniforms_of(of_graph, tf.constant(counters), 5).numpy()
    assert found.dtype == np.float64
    assert np.array_equal(found, uniforms(key(stream, seed, epoch), counters, 5))


def test_the_same_inside_a_traced_function():
    @tf.function
    def traced(epoch, counters):
        return key_of(3, 2**63, epoch), uniforms_of(key_of(3, 2**63, epoch), counters, 22)

    found, draws = traced(tf.constant(-9, tf.int64), tf.constant(SOME))
    assert int(found) == key(3, 2**63, -9)
    assert np.array_equal(draws, uniforms(key(3, 2**63, -9), SOME, 22))


def test_one_key_for_each_sample():
    keys = key_of(6, 1, tf.constant(2, tf.int64), tf.constant(SOME))
    assert [int(one) for one in keys] == [key(6, 1, 2, int(index)) for index in SOME]
    rows = hashes_of(keys[:, None], tf.range(4, dtype=tf.int64)).numpy()
    assert np.array_equal(rows, [hashes(int(one), np.arange(4)) for one in keys])
    draws = uniforms_of(keys, tf.constant(SOME), 3).numpy()
    expected = [uniforms(int(one), SOME[k : k + 1], 3)[0] for k, one in enumerate(keys)]
    assert np.array_equal(draws, expected)


def test_parts_known_beforehand_give_a_key_too():
    assert int(key_of(1, -5)) == key(1, -5)
    assert int(key_of(1, 5)) != key(5, 1)
