"""RandAugment, AutoAugment and TrivialAugment: which operations an image gets, and how strong they are.

The choice is drawn for a virtual batch at once; the operations are carried out image by image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from distxcept.data import operations

RANDAUGMENT_DRAWS = 2
"""For each operation."""
AUTOAUGMENT_DRAWS = 5
TRIVIALAUGMENT_DRAWS = 3

_OPERATIONS: dict[str, operations.Operation] = {
    "identity": operations.identity,
    "autocontrast": operations.autocontrast,
    "equalize": operations.equalize,
    "rotate": operations.rotate,
    "solarize": operations.solarize,
    "posterize": operations.posterize,
    "color": operations.color,
    "contrast": operations.contrast,
    "brightness": operations.brightness,
    "sharpness": operations.sharpness,
    "shear_x": operations.shear_x,
    "shear_y": operations.shear_y,
    "translate_x": operations.translate_x,
    "translate_y": operations.translate_y,
    "invert": operations.invert,
}
_NUMBERS = {name: number for number, name in enumerate(_OPERATIONS)}
_COMMON = 14
"""RandAugment and TrivialAugment choose from all but the last."""


@dataclass(frozen=True)
class _Range:
    """Strength of an operation at levels 0 and 1, in the operation's own unit."""

    weakest: float
    strongest: float
    both_ways: bool = False
    whole: bool = False


def _ranges(
    *, rotate: float, shear: float, translate: float, enhance: _Range, bits: int
) -> tuple[_Range, ...]:
    """For each operation, by its number."""
    named = {
        "rotate": _Range(0, rotate, both_ways=True),
        "solarize": _Range(256, 0, whole=True),
        "posterize": _Range(8, bits, whole=True),
        **dict.fromkeys(("color", "contrast", "brightness", "sharpness"), enhance),
        **dict.fromkeys(("shear_x", "shear_y"), _Range(0, shear, both_ways=True)),
        **dict.fromkeys(("translate_x", "translate_y"), _Range(0, translate, both_ways=True)),
    }
    return tuple(named.get(name, _Range(0, 0)) for name in _OPERATIONS)


_RANDAUGMENT = _ranges(rotate=30, shear=0.3, translate=0.3, enhance=_Range(1, 1.9, both_ways=True), bits=4)
_TRIVIALAUGMENT = _ranges(
    rotate=135, shear=0.99, translate=32 / 224, enhance=_Range(1, 1.99, both_ways=True), bits=2
)
_TRIVIALAUGMENT_LEVELS = 31
_AUTOAUGMENT = _ranges(rotate=30, shear=0.3, translate=150 / 331, enhance=_Range(0.1, 1.9), bits=4)
_AUTOAUGMENT_LEVELS = 10

# (operation, probability, level from 0 to 9), twice: the policy for ImageNet of Cubuk et al., "AutoAugment:
# Learning Augmentation Policies from Data", 2019. Where an operation knows no strength its level means nothing.
_IMAGENET_POLICY: tuple[tuple[tuple[str, float, int], tuple[str, float, int]], ...] = (
    (("posterize", 0.4, 8), ("rotate", 0.6, 9)),
    (("solarize", 0.6, 5), ("autocontrast", 0.6, 5)),
    (("equalize", 0.8, 8), ("equalize", 0.6, 3)),
    (("posterize", 0.6, 7), ("posterize", 0.6, 6)),
    (("equalize", 0.4, 7), ("solarize", 0.2, 4)),
    (("equalize", 0.4, 4), ("rotate", 0.8, 8)),
    (("solarize", 0.6, 3), ("equalize", 0.6, 7)),
    (("posterize", 0.8, 5), ("equalize", 1.0, 2)),
    (("rotate", 0.2, 3), ("solarize", 0.6, 8)),
    (("equalize", 0.6, 8), ("posterize", 0.4, 6)),
    (("rotate", 0.8, 8), ("color", 0.4, 0)),
    (("rotate", 0.4, 9), ("equalize", 0.6, 2)),
    (("equalize", 0.0, 7), ("equalize", 0.8, 8)),
    (("invert", 0.6, 4), ("equalize", 1.0, 8)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
    (("rotate", 0.8, 8), ("color", 1.0, 2)),
    (("color", 0.8, 8), ("solarize", 0.8, 7)),
    (("sharpness", 0.4, 7), ("invert", 0.6, 8)),
    (("shear_x", 0.6, 5), ("equalize", 1.0, 9)),
    (("color", 0.4, 0), ("equalize", 0.6, 3)),
    (("equalize", 0.4, 7), ("solarize", 0.2, 4)),
    (("solarize", 0.6, 5), ("autocontrast", 0.6, 5)),
    (("invert", 0.6, 4), ("equalize", 1.0, 8)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
    (("equalize", 0.8, 8), ("equalize", 0.6, 3)),
)


def randaugment(images: tf.Tensor, setting: Any, draws: tf.Tensor) -> tf.Tensor:
    """Traced. Operations picked with equal probability, one after the other, all of the same magnitude."""
    draws = tf.reshape(draws, [-1, setting.operations, RANDAUGMENT_DRAWS])
    numbers = tf.cast(draws[:, :, 0] * _COMMON, tf.int32)
    levels = tf.fill(tf.shape(numbers), tf.constant(setting.magnitude / 10, tf.float64))
    return _carry_out(images, numbers, _strengths(_RANDAUGMENT, numbers, levels, draws[:, :, 1]))


def autoaugment(images: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    """Traced. One of the pairs of the policy, each of its operations with its probability."""
    names, chances, levels = (
        np.array([[step[part] for step in pair] for pair in _IMAGENET_POLICY]) for part in range(3)
    )
    pair = tf.cast(draws[:, 0] * len(_IMAGENET_POLICY), tf.int32)
    numbers = tf.gather(tf.constant(np.vectorize(_NUMBERS.get)(names), tf.int32), pair)
    happens = draws[:, 1:3] < tf.gather(tf.constant(chances, tf.float64), pair)
    steps = tf.gather(tf.constant(levels / (_AUTOAUGMENT_LEVELS - 1), tf.float64), pair)
    strengths = _strengths(_AUTOAUGMENT, numbers, steps, draws[:, 3:5])
    return _carry_out(images, tf.where(happens, numbers, _NUMBERS["identity"]), strengths)


def trivialaugment(images: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    """Traced. One operation of any of 31 levels: Müller and Hutter, "TrivialAugment", 2021, the wide ranges."""
    numbers = tf.cast(draws[:, :1] * _COMMON, tf.int32)
    levels = tf.floor(draws[:, 1:2] * _TRIVIALAUGMENT_LEVELS) / (_TRIVIALAUGMENT_LEVELS - 1)
    return _carry_out(images, numbers, _strengths(_TRIVIALAUGMENT, numbers, levels, draws[:, 2:3]))


def _strengths(
    ranges: Sequence[_Range], numbers: tf.Tensor, levels: tf.Tensor, signs: tf.Tensor
) -> tf.Tensor:
    """[v, operations], float64; a sign drawn below one half is positive."""

    def table(values: list) -> tf.Tensor:
        return tf.gather(tf.constant(np.array(values)), numbers)

    change = table([one.strongest - one.weakest for one in ranges]) * levels
    negative = table([one.both_ways for one in ranges]) & (signs >= 0.5)
    strengths = table([float(one.weakest) for one in ranges]) + tf.where(negative, -change, change)
    return tf.where(table([one.whole for one in ranges]), tf.round(strengths), strengths)


def _carry_out(images: tf.Tensor, numbers: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Image i gets the operations `numbers[i]`, one after the other."""

    def one(row: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> tf.Tensor:
        image, chosen, strength = row
        for k in range(numbers.shape[1]):
            image = _apply(image, chosen[k], strength[k])
        return image

    signature = tf.TensorSpec(images.shape[1:], images.dtype)
    return tf.map_fn(one, (images, numbers, strengths), fn_output_signature=signature, parallel_iterations=1)


def _apply(image: tf.Tensor, number: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
    branches = {k: _branch(operation, image, strength) for k, operation in enumerate(_OPERATIONS.values())}
    return tf.ensure_shape(tf.switch_case(number, branches), image.shape)


def _branch(operation: operations.Operation, image: tf.Tensor, strength: tf.Tensor) -> Any:
    return lambda: operation(image, strength)
