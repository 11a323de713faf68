"""Changes of images that already have the model's size: turning, colours, erasing.

Each takes a virtual batch, uint8 [v, size, size, 3], and its random numbers, float64 [v, draws] uniform in [0, 1).
What a sample becomes depends on its own row alone, to the last bit: sums are of numbers that float32 holds exactly,
other functions come from `elementary`.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from distxcept.data.elementary import between, sine_and_cosine
from distxcept.data.keyed import hashes_of

AFFINE_DRAWS = 6
COLOR_DRAWS = 4
ERASE_DRAWS = 6

_LUMINANCE = np.array([0.299, 0.587, 0.114])
_TO_YIQ = np.array([_LUMINANCE, [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
_FROM_YIQ = np.linalg.inv(_TO_YIQ)
# A turn of the hue by an angle is a constant matrix, one times its cosine and one times its sine.
_HUE_CONSTANT, _HUE_COSINE, _HUE_SINE = (
    _FROM_YIQ @ np.array(part, np.float64) @ _TO_YIQ
    for part in (
        [[1, 0, 0], [0, 0, 0], [0, 0, 0]],
        [[0, 0, 0], [0, 1, 0], [0, 0, 1]],
        [[0, 0, 0], [0, 0, -1], [0, 1, 0]],
    )
)
_COLOR_STEP = 2.0**-11


def affine(images: tf.Tensor, augment: Any, draws: tf.Tensor) -> tf.Tensor:
    """Traced. Rotation, shear, zoom and shift in one."""
    return warp(images, *affine_parts(augment, draws), mirror=True)


def affine_parts(augment: Any, draws: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Traced. From output to input coordinates about the centre: [v, 2, 2], and the shift [v, 2] in sides."""
    spread = 2 * draws - 1
    sine, cosine = sine_and_cosine(augment.rotate * spread[:, 0])
    shear_sine, shear_cosine = sine_and_cosine(augment.shear * spread[:, 1])
    shear = shear_sine / shear_cosine
    smallest, largest = augment.zoom or (1.0, 1.0)
    zoom = between(smallest, largest, draws[:, 2])
    rows = [[cosine, cosine * shear - sine], [sine, sine * shear + cosine]]
    linear = tf.stack([tf.stack(row, axis=-1) for row in rows], axis=-2)
    return linear / zoom[:, None, None], augment.shift * spread[:, 3:5]


def warp(images: tf.Tensor, linear: tf.Tensor, shift: tf.Tensor, *, mirror: bool) -> tf.Tensor:
    """Traced. Bilinear. What lies outside of the image is its mirror image, or grey."""
    size = images.shape[1]
    # TensorFlow counts from the centre of the first pixel.
    middle = (size - 1) / 2
    offset = middle - (linear[:, :, 0] + linear[:, :, 1]) * middle + shift * size
    rows = tf.concat([linear, offset[:, :, None]], axis=2)
    transforms = tf.concat([tf.reshape(rows, [-1, 6]), tf.zeros_like(rows[:, :, 0])], axis=1)
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.cast(transforms, tf.float32),
        output_shape=tf.constant([size, size]),
        fill_value=tf.constant(128.0),
        interpolation="BILINEAR",
        fill_mode="REFLECT" if mirror else "CONSTANT",
    )


def color(images: tf.Tensor, color: Any, draws: tf.Tensor) -> tf.Tensor:
    """Traced. Brightness, contrast, saturation and hue are linear, so all four are one matrix and an offset."""
    spread = (2 * draws - 1)[:, :, None, None]
    brightness, contrast = 1 + color.brightness * spread[:, 0], 1 + color.contrast * spread[:, 1]
    saturation = 1 + color.saturation * spread[:, 2]
    sine, cosine = sine_and_cosine(360 * color.hue * spread[:, 3])
    hue = _HUE_CONSTANT + cosine * _HUE_COSINE + sine * _HUE_SINE
    gray = np.tile(_LUMINANCE, (3, 1))
    matrix = (saturation * hue + (1 - saturation) * gray) * (brightness * contrast)
    offset = (1 - contrast) * brightness * _mean_luminance(images) + 0.5
    # Of few enough bits that every product and sum is exact, in whatever order it is computed.
    matrix, offset = (tf.cast(tf.round(x / _COLOR_STEP) * _COLOR_STEP, tf.float32) for x in (matrix, offset))
    pixels = tf.reshape(tf.cast(images, tf.float32), [-1, images.shape[1] * images.shape[2], 3])
    changed = tf.matmul(pixels, matrix, transpose_b=True) + offset
    return tf.reshape(tf.cast(tf.clip_by_value(changed, 0, 255), tf.uint8), tf.shape(images))


def _mean_luminance(images: tf.Tensor) -> tf.Tensor:
    """[v, 1, 1], from sums of whole numbers."""
    size = images.shape[1]
    columns = tf.reduce_sum(tf.cast(tf.reshape(images, [-1, size, size * 3]), tf.int32), axis=1)
    sums = tf.cast(tf.reduce_sum(tf.reshape(columns, [-1, size, 3]), axis=1), tf.float64)
    red, green, blue = (sums[:, k] * part for k, part in enumerate(_LUMINANCE))
    return ((red + green + blue) / size**2)[:, None, None]


def erase(images: tf.Tensor, erase: Any, draws: tf.Tensor, noise_keys: tf.Tensor) -> tf.Tensor:
    """Traced. Random erasing: a rectangle of side ratio 0.3 to 3.3 becomes noise; `noise_keys` is uint64 [v]."""
    size = images.shape[1]
    area = size * size * (erase.area[0] + (erase.area[1] - erase.area[0]) * draws[:, 1])
    ratio = between(0.3, 1 / 0.3, draws[:, 2])
    sides = tf.sqrt(tf.stack([area * ratio, area / ratio], axis=1))
    lengths = tf.clip_by_value(tf.round(sides), 1, size)
    corners = tf.floor((size - lengths + 1) * draws[:, 3:5])
    boxes = tf.cast(tf.concat([corners, lengths], axis=1), tf.int32)

    def one(row: tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]) -> tf.Tensor:
        image, chosen, box, key = row
        return tf.cond(chosen, lambda: _noise_in(image, box, key), lambda: image)

    # One by one: noise for whole images takes longer than this loop, and most images stay as they are.
    return tf.map_fn(
        one,
        (images, draws[:, 0] < erase.probability, boxes, noise_keys),
        fn_output_signature=tf.TensorSpec(images.shape[1:], images.dtype),
        parallel_iterations=1,
    )


def _noise_in(image: tf.Tensor, box: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """The image with noise in the box (top, left, height, width)."""
    top, left, height, width = tf.unstack(box)
    count = height * width * 3
    bits = hashes_of(key, tf.range((tf.cast(count, tf.int64) + 7) // 8))
    noise = tf.reshape(tf.reshape(tf.bitcast(bits, tf.uint8), [-1])[:count], [height, width, 3])
    beside = image[top : top + height]
    band = tf.concat([beside[:, :left], noise, beside[:, left + width :]], axis=1)
    return tf.ensure_shape(tf.concat([image[:top], band, image[top + height :]], axis=0), image.shape)
