"""Exponential, sine and cosine: right, and the same at every place of a tensor."""

import math

import numpy as np
import pytest
import tensorflow as tf

from distxcept.data.elementary import between, exp, sine_and_cosine

RANDOM = np.random.default_rng(0)
EXPONENTS = np.concatenate([RANDOM.uniform(-2, 2, 997), RANDOM.uniform(-700, 700, 200)])
DEGREES = RANDOM.uniform(-360, 360, 997)


@pytest.mark.parametrize("function", [exp, lambda x: tf.stack(sine_and_cosine(x))])
@pytest.mark.parametrize("values", [EXPONENTS, DEGREES])
def test_the_place_does_not_matter(function, values):
    values = values[:203]
    together = np.atleast_2d(tf.function(function)(tf.constant(values)))
    for start in range(9):
        shifted = np.atleast_2d(tf.function(function)(tf.constant(values[start:])))
        assert np.array_equal(shifted, together[:, start:])
    alone = [np.atleast_2d(function(tf.constant([value])))[:, 0] for value in values]
    assert np.array_equal(np.stack(alone, axis=1), together)


def test_right_to_the_last_bits():
    assert np.allclose(exp(tf.constant(EXPONENTS)), np.exp(EXPONENTS), rtol=5e-16, atol=0)
    sine, cosine = sine_and_cosine(tf.constant(DEGREES))
    assert np.allclose(sine, np.sin(np.radians(DEGREES)), rtol=0, atol=2e-15)
    assert np.allclose(cosine, np.cos(np.radians(DEGREES)), rtol=0, atol=2e-15)


def test_right_angles_are_exact():
    sine, cosine = sine_and_cosine(tf.range(-450.0, 451.0, 90.0, tf.float64))
    assert np.array_equal(sine, [-1, 0, 1, 0, -1, 0, 1, 0, -1, 0, 1])
    assert np.array_equal(cosine, [0, 1, 0, -1, 0, 1, 0, -1, 0, 1, 0])


def test_never_zero_or_infinite():
    extreme = exp(tf.constant([-1e9, -708.5, 708.5, 1e9], tf.float64)).numpy()
    assert np.isfinite(extreme).all()
    assert (extreme > 0).all()


def test_between_is_even_in_the_logarithm():
    found = between(0.5, 2.0, tf.constant([0, 0.25, 0.5, 1], tf.float64)).numpy()
    assert np.allclose(found, [0.5, math.sqrt(0.5), 1, 2])
