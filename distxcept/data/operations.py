"""The image operations that RandAugment, AutoAugment and TrivialAugment choose from, with Pillow's results.

Each takes one image, uint8 [size, size, 3], and a strength, a float64 scalar whose meaning is its own: degrees, a
part of the side, a factor, a number of bits. TensorFlow is slow at single bytes and at an axis of three, hence rows
of float32. Sums are of numbers that float32 holds exactly, so that their order does not matter.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from distxcept.data.effects import warp
from distxcept.data.elementary import sine_and_cosine

Operation = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

# Pillow's: whole numbers out of 2^16. Of bytes weighted so, float32 holds even the sum exactly.
_LUMINANCE = np.array([19595, 38470, 7471], np.float32)


def identity(image: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
    """Traced."""
    return image


def autocontrast(image: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
    """Traced. The darkest value of each channel becomes 0 and the brightest 255."""
    size = image.shape[1]
    rows = tf.reshape(image, [-1, size * 3])
    low, high = (
        tf.cast(extreme(tf.reshape(extreme(rows, axis=0), [-1, 3]), axis=0), tf.float64)
        for extreme in (tf.reduce_min, tf.reduce_max)
    )
    scale = tf.where(high > low, 255 / tf.maximum(high - low, 1), 1)
    offset = tf.where(high > low, -low * scale, 0)
    stretched = tf.cast(rows, tf.float64) * tf.tile(scale, [size]) + tf.tile(offset, [size])
    return _pixels(stretched, image)


def equalize(image: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
    """Traced. Makes all values of a channel about equally frequent."""
    # One table of 3 · 256 values: each channel has its own part.
    places = _rows(image, tf.int32) + tf.constant(np.tile([0, 256, 512], image.shape[1]), tf.int32)
    counts = tf.raw_ops.DenseBincount(
        input=tf.reshape(places, [-1]), size=tf.constant(768), weights=tf.zeros([0], tf.int32)
    )
    counts = tf.reshape(counts, [3, 256])
    levels = tf.range(256)[None, :]
    brightest = tf.reduce_max(tf.where(counts > 0, levels, 0), axis=1, keepdims=True)
    others = tf.reduce_sum(tf.where(levels == brightest, 0, counts), axis=1, keepdims=True)
    step = others // 255
    below = tf.cumsum(counts, axis=1, exclusive=True)
    spread = tf.minimum((step // 2 + below) // tf.maximum(step, 1), 255)
    table = tf.cast(tf.where(step > 0, spread, levels), tf.uint8)
    return tf.reshape(tf.gather(tf.reshape(table, [-1]), places), image.shape)


def invert(image: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
    """Traced."""
    return tf.bitwise.invert(image)


def solarize(image: tf.Tensor, threshold: tf.Tensor) -> tf.Tensor:
    """Traced. Inverts the values from the threshold on: 256 changes nothing."""
    # At 256 no byte holds the threshold.
    bright = (image >= tf.cast(tf.minimum(threshold, 255), tf.uint8)) & (threshold < 256)
    return tf.bitwise.bitwise_xor(image, tf.cast(bright, tf.uint8) * 255)


def posterize(image: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """Traced. Keeps this many bits of each value."""
    lost = tf.cast(8 - bits, tf.int32)
    return tf.bitwise.bitwise_and(image, tf.cast(256 - tf.bitwise.left_shift(1, lost), tf.uint8))


def color(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Traced. 0: black and white, 1: as it is."""
    return _blend(_gray(image), image, factor)


def contrast(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Traced. 0: a plain grey, 1: as it is."""
    count = image.shape[0] * image.shape[1] * 3
    total = tf.reduce_sum(tf.reduce_sum(tf.cast(_gray(image), tf.int32), axis=0, keepdims=True))
    mean = (2 * tf.cast(total, tf.int64) + count) // (2 * count)
    return _blend(tf.cast(mean, tf.float32), image, factor)


def brightness(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Traced. 0: black, 1: as it is."""
    return _blend(tf.constant(0.0), image, factor)


def sharpness(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Traced. 0: smoothed, 1: as it is, 2: sharpened. The outermost pixels stay."""
    rows = _rows(image, tf.float32)
    columns = rows[:-2] + rows[1:-1] + rows[2:]
    around = columns[:, :-6] + columns[:, 3:-3] + columns[:, 6:]
    # The middle counts five times of thirteen.
    middle = tf.floor((around + 4 * rows[1:-1, 3:-3]) * (1 / 13) + 0.5)
    smooth = tf.concat([rows[1:-1, :3], middle, rows[1:-1, -3:]], axis=1)
    return _blend(tf.concat([rows[:1], smooth, rows[-1:]], axis=0), image, factor)


def rotate(image: tf.Tensor, degrees: tf.Tensor) -> tf.Tensor:
    """Traced. Against the clock, about the centre."""
    sine, cosine = sine_and_cosine(degrees)
    return _warp(image, [cosine, -sine, sine, cosine], [0, 0])


def shear_x(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Traced. Each row moves to the left by this part of its distance from the top."""
    return _warp(image, [1, factor, 0, 1], [factor / 2, 0])


def shear_y(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Traced. Each column moves up by this part of its distance from the left."""
    return _warp(image, [1, 0, factor, 1], [0, factor / 2])


def translate_x(image: tf.Tensor, part: tf.Tensor) -> tf.Tensor:
    """Traced. To the left by this part of the side."""
    return _warp(image, [1, 0, 0, 1], [part, 0])


def translate_y(image: tf.Tensor, part: tf.Tensor) -> tf.Tensor:
    """Traced. Up by this part of the side."""
    return _warp(image, [1, 0, 0, 1], [0, part])


def _rows(image: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return tf.cast(tf.reshape(image, [-1, image.shape[1] * 3]), dtype)


def _pixels(rows: tf.Tensor, image: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.cast(tf.clip_by_value(rows, 0, 255), tf.uint8), image.shape)


def _gray(image: tf.Tensor) -> tf.Tensor:
    """Rows with the luminance in all three channels."""
    pixels = tf.reshape(tf.cast(image, tf.float32), [-1, 3])
    weighted = tf.matmul(pixels, tf.constant(np.tile(_LUMINANCE[:, None], (1, 3))))
    return tf.reshape(tf.floor((weighted + 2.0**15) * 2.0**-16), [-1, image.shape[1] * 3])


def _blend(degenerate: tf.Tensor, image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    rows = _rows(image, tf.float32)
    return _pixels(degenerate + tf.cast(factor, tf.float32) * (rows - degenerate), image)


def _warp(image: tf.Tensor, linear: list, shift: list) -> tf.Tensor:
    matrix = tf.reshape(tf.stack([tf.cast(x, tf.float64) for x in linear]), [1, 2, 2])
    move = tf.stack([tf.cast(x, tf.float64) for x in shift])[None]
    return warp(image[None], matrix, move, mirror=False)[0]
