"""MixUp and CutMix, on the device, within each virtual batch.

Keyed like dropout by (seed, update, virtual batch), so that the result does not depend on who computes it. A
sample of weight zero is never a partner: its pixels mean nothing. With both switched on each virtual batch gets one
of them, by the toss of a coin.
"""

from functools import cache

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

_KNOTS = 1025


def mix(
    images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, seeds: tf.Tensor, *, mixup: float, cutmix: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Traced, on the replica. Mixes images [groups · v, h, w, 3] and labels [groups · v, classes] of some float type.

    `weights` is [groups · v]; `seeds` is int64 [groups, 2] with a static number of groups, one for each virtual
    batch; `mixup` and `cutmix` are the alphas, 0 for off.
    """
    if not mixup and not cutmix:
        return images, labels
    groups = seeds.shape[0]
    mixed = [
        _mix_group(*group, mixup, cutmix)
        for group in zip(
            tf.split(images, groups),
            tf.split(labels, groups),
            tf.split(weights, groups),
            [seeds[k] for k in range(groups)],  # a GPU unstacks int64 on the host
            strict=True,
        )
    ]
    return tf.concat([pair[0] for pair in mixed], 0), tf.concat([pair[1] for pair in mixed], 0)


def _mix_group(
    images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, seed: tf.Tensor, mixup: float, cutmix: float
) -> tuple[tf.Tensor, tf.Tensor]:
    # Philox by name: the automatic choice may differ between devices.
    draws = tf.random.stateless_uniform([5], seed, alg="philox")
    partner = _partners(weights, draws[0])
    others, other_labels = tf.gather(images, partner), tf.gather(labels, partner)
    height, width = images.shape[1], images.shape[2]
    use_cutmix = draws[1] < 0.5 if mixup and cutmix else tf.constant(bool(cutmix))
    blend = _share(draws[2], mixup) if mixup else tf.constant(1.0)
    inside = _patch(1.0 - _share(draws[2], cutmix), draws[3], draws[4], height, width) if cutmix else None
    # Part of the own image at each pixel, and on the whole: the label follows the area that is really there.
    own = tf.fill([height, width], blend)
    if inside is not None:
        own = tf.where(use_cutmix, 1.0 - inside, own)
    own_label = tf.cast(tf.where(use_cutmix, tf.reduce_mean(own), blend), labels.dtype)
    own_pixel = tf.cast(own, images.dtype)[None, :, :, None]
    return (
        images * own_pixel + others * (1 - own_pixel),
        labels * own_label + other_labels * (1 - own_label),
    )


def _partners(weights: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
    """Each real sample gets the one that stands a random number of real samples further; others keep themselves."""
    # Places as float32, which is exact for them: a GPU would compute int32 on the host.
    real = weights > 0
    counted = tf.cast(real, tf.float32)
    count, rank = tf.reduce_sum(counted), tf.cumsum(counted) - 1
    shift = 1 + tf.floor(draw * (count - 1))
    own = tf.range(weights.shape[0], dtype=tf.float32)
    # Real samples first, in their order: position in this list is the rank.
    order = tf.cast(tf.argsort(1 - counted, stable=True), tf.float32)
    place = tf.math.floormod(rank + shift, tf.maximum(count, 1))
    partner = tf.gather(order, tf.cast(place, tf.int32))
    return tf.cast(tf.where(real, partner, own), tf.int32)


def _patch(share: tf.Tensor, draw_y: tf.Tensor, draw_x: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """1.0 inside a rectangle of this share of the area around a random point, cut at the border; else 0.0."""
    side = tf.sqrt(share)

    def band(length: int, draw: tf.Tensor) -> tf.Tensor:
        centre, half = draw * length, side * length / 2
        pixels = tf.range(length, dtype=tf.float32) + 0.5
        return tf.cast((pixels >= centre - half) & (pixels < centre + half), tf.float32)

    return band(height, draw_y)[:, None] * band(width, draw_x)[None, :]


def _share(draw: tf.Tensor, alpha: float) -> tf.Tensor:
    """A draw of Beta(alpha, alpha) from a uniform one: its quantile, read from a table."""
    table = tf.constant(beta_quantiles(alpha), tf.float32)
    place = draw * (_KNOTS - 1)
    below = tf.minimum(tf.floor(place), _KNOTS - 2)
    low, high = (tf.gather(table, tf.cast(below + step, tf.int32)) for step in (0, 1))
    return low + (high - low) * (place - below)


@cache
def beta_quantiles(alpha: float) -> NDArray[np.float64]:
    """Quantiles of Beta(alpha, alpha) at evenly spaced probabilities; devices have no gamma generator.

    With x = sin²(t) the density becomes (sin t · cos t)^(2·alpha - 1), which is finite at the ends from alpha 0.5 on;
    below that the first cells are integrated by their power law.
    """
    t = np.linspace(0, np.pi / 4, 20_001)
    power = 2 * alpha - 1
    product = np.sin(t) * np.cos(t)
    # ∫ t^power over a cell, exactly, times the rest of the density, which is smooth.
    ratio = np.ones_like(t)
    ratio[1:] = (product[1:] / t[1:]) ** power
    cells = np.diff(t ** (power + 1)) / (power + 1) * (ratio[1:] + ratio[:-1]) / 2
    half = np.concatenate([[0.0], np.cumsum(cells)])
    half *= 0.5 / half[-1]
    lower = np.interp(np.linspace(0, 0.5, (_KNOTS + 1) // 2), half, np.sin(t) ** 2)
    return np.concatenate([lower, 1 - lower[-2::-1]])
