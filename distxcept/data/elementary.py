"""Exponential, sine and cosine from additions and multiplications alone.

TensorFlow computes most of a tensor in vectors and its last few elements one by one, and `tf.exp` differs in the
last bit between the two. A number would then depend on its place in the batch. Additions, multiplications, divisions
and square roots are rounded exactly, wherever they happen. All tensors are float64.
"""

from math import factorial, log, pi

import tensorflow as tf

_LOG_2_HIGH = 0x162E42FEE00000 / 2**53  # few enough bits that its multiples up to 1024 are exact
_LOG_2_LOW = 1.90821492927058770002e-10
_EXP = tuple(1 / factorial(k) for k in range(14))
_SINE = tuple((-1) ** k / factorial(2 * k + 1) for k in range(9))
_COSINE = tuple((-1) ** k / factorial(2 * k) for k in range(10))


def exp(x: tf.Tensor) -> tf.Tensor:
    """Traced. e to the x, right to about one bit; never 0 or infinite, whatever x is."""
    x = tf.clip_by_value(x, -708, 708)
    power = tf.round(x / log(2))
    rest = (x - power * _LOG_2_HIGH) - power * _LOG_2_LOW
    two_to_power = tf.bitcast((tf.cast(power, tf.int64) + 1023) * 2**52, tf.float64)
    return _polynomial(_EXP, rest) * two_to_power


def sine_and_cosine(degrees: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Traced. Exactly 0, 1 and -1 at right angles, so that a quarter turn of an image is one."""
    quarter = tf.round(degrees / 90)
    rest = (degrees - 90 * quarter) * (pi / 180)
    square = rest * rest
    sine, cosine = rest * _polynomial(_SINE, square), _polynomial(_COSINE, square)
    turns = tf.math.floormod(tf.cast(quarter, tf.int32), 4)
    swapped, negative_sine = turns % 2 == 1, turns >= 2
    negative_cosine = (turns == 1) | (turns == 2)
    sine, cosine = tf.where(swapped, cosine, sine), tf.where(swapped, sine, cosine)
    return tf.where(negative_sine, -sine, sine), tf.where(negative_cosine, -cosine, cosine)


def between(low: float, high: float, share: tf.Tensor) -> tf.Tensor:
    """Traced. From low at share 0 to high at 1, evenly in the logarithm."""
    return exp(log(low) + (log(high) - log(low)) * share)


def _polynomial(coefficients: tuple[float, ...], x: tf.Tensor) -> tf.Tensor:
    total = tf.fill(tf.shape(x), tf.constant(coefficients[-1], tf.float64))
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total
