"""Random views of training images, drawn from (seed, epoch, sample index) alone, for a virtual batch at a time.

Everything here becomes part of the graph that reads the images. Each kind of change has its own stream, so switching
one on does not alter the others. Order: crop and flip (`draw`), which decoding carries out; affine, RandAugment,
AutoAugment, TrivialAugment, colour, erase (`change`). MixUp and CutMix happen on the device: see `mix.py`.

The same sample gets the same bits in whatever batch and place it stands, hence `elementary` instead of `tf.exp`.
"""

from typing import Any

import tensorflow as tf

from distxcept.data import effects, policies
from distxcept.data.elementary import between
from distxcept.data.keyed import key_of, uniforms_of

_FLIP, _CROP, _AFFINE, _RANDAUGMENT, _COLOR, _ERASE, _AUTOAUGMENT, _TRIVIALAUGMENT = range(1, 9)
_CROP_ATTEMPTS = 10


def draw(
    augment: Any, sizes: tf.Tensor, *, seed: int, epoch: tf.Tensor, indices: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Traced. Windows (top, left, height, width), int32 [v, 4], and whether to mirror, bool [v].

    `augment` is the config section, or None for the plain centre; `sizes` is int32 [v, 2], (height, width) of the
    upright images. An image of size 0 gets a window of size 0.
    """
    windows, flips = centre_windows(sizes), tf.zeros_like(indices, tf.bool)
    if augment is None:
        return windows, flips
    if augment.flip:
        flips = _draws(_FLIP, 1, seed, epoch, indices)[:, 0] < 0.5
    if augment.crop is not None:
        windows = _random_windows(
            augment.crop, sizes, _draws(_CROP, 2 * _CROP_ATTEMPTS + 2, seed, epoch, indices)
        )
    return windows, flips


def change(augment: Any, images: tf.Tensor, *, seed: int, epoch: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Traced. What is changed after scaling; images are uint8 [v, size, size, 3]."""
    if augment is None:
        return images

    def draws(stream: int, count: int) -> tf.Tensor:
        return _draws(stream, count, seed, epoch, indices)

    if augment.rotate or augment.shift or augment.shear or augment.zoom:
        images = effects.affine(images, augment, draws(_AFFINE, effects.AFFINE_DRAWS))
    if augment.randaugment is not None:
        count = policies.RANDAUGMENT_DRAWS * augment.randaugment.operations
        images = policies.randaugment(images, augment.randaugment, draws(_RANDAUGMENT, count))
    if augment.autoaugment:
        images = policies.autoaugment(images, draws(_AUTOAUGMENT, policies.AUTOAUGMENT_DRAWS))
    if augment.trivialaugment:
        images = policies.trivialaugment(images, draws(_TRIVIALAUGMENT, policies.TRIVIALAUGMENT_DRAWS))
    if augment.color is not None:
        images = effects.color(images, augment.color, draws(_COLOR, effects.COLOR_DRAWS))
    if augment.erase is not None:
        noise_keys = key_of(_ERASE, seed, epoch, indices)
        images = effects.erase(images, augment.erase, draws(_ERASE, effects.ERASE_DRAWS), noise_keys)
    return images


def centre_windows(sizes: tf.Tensor, crop: float = 1.0) -> tf.Tensor:
    """Traced. `centre_window` of each (height, width): int32 [v, 4]."""
    shorter = tf.reduce_min(sizes, axis=1)
    side = tf.cast(tf.round(crop * tf.cast(shorter, tf.float64)), tf.int32)
    side = tf.minimum(shorter, tf.maximum(side, 1))
    corner = (sizes - side[:, None]) // 2
    return tf.concat([corner, side[:, None], side[:, None]], axis=1)


def _draws(stream: int, count: int, seed: int, epoch: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    return uniforms_of(key_of(stream, seed, epoch), indices, count)


def _random_windows(crop: Any, sizes: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    """Random resized crop: an area and a side ratio that fit, at a random place.

    Drawn again up to ten times when the window would stick out, then the largest centred window of an allowed
    ratio, so that extreme panoramas still give something sensible.
    """
    size = tf.cast(sizes, tf.float64)
    height, width = size[:, :1], size[:, 1:]
    (low, high), (narrowest, widest) = crop.scale, crop.ratio
    area = height * width * (low + (high - low) * draws[:, 0:-2:2])
    ratio = between(narrowest, widest, draws[:, 1:-2:2])
    w, h = (tf.maximum(tf.round(tf.sqrt(part)), 1) for part in (area * ratio, area / ratio))
    fits = tf.cast((w <= width) & (h <= height), tf.int32)
    first = tf.argmax(fits * tf.range(_CROP_ATTEMPTS, 0, -1), axis=1)[:, None]
    found, h, w = (tf.gather(of_attempt, first, batch_dims=1) for of_attempt in (fits, h, w))
    top, left = (height - h + 1) * draws[:, -2:-1], (width - w + 1) * draws[:, -1:]
    drawn = tf.concat([top, left, h, w], axis=1)
    return tf.cast(tf.where(found > 0, tf.floor(drawn), _largest_windows(crop, height, width)), tf.int32)


def _largest_windows(crop: Any, height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    ratio = tf.clip_by_value(width / tf.maximum(height, 1), *crop.ratio)
    w = tf.minimum(width, tf.maximum(tf.round(height * ratio), 1))
    h = tf.minimum(height, tf.maximum(tf.round(width / ratio), 1))
    return tf.concat([(height - h) // 2, (width - w) // 2, h, w], axis=1)
