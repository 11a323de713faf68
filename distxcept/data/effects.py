"""Changes of an image that already has the model's size: turning, colours, RandAugment, erasing.

Each function takes its random numbers, uniform in [0, 1), as an argument: the same numbers give the same pixels on
every machine and in every thread. Pixels are uint8 [size, size, 3] throughout.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from distxcept.data.keyed import hashes
from distxcept.data.sources.base import Pixels

Draws = NDArray[np.float64]
Matrix = NDArray[np.float64]

AFFINE_DRAWS = 6
COLOR_DRAWS = 4
ERASE_DRAWS = 6
RANDAUGMENT_DRAWS = 2
"""For each operation."""

_LUMINANCE = np.array([0.299, 0.587, 0.114])
_TO_YIQ = np.array([_LUMINANCE, [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
_FROM_YIQ = np.linalg.inv(_TO_YIQ)


def affine_matrix(augment: Any, draws: Draws) -> Matrix:
    """[2, 3] from output to input coordinates, both from -0.5 to 0.5: rotation, shear, zoom and shift in one."""
    spread = 2 * draws - 1
    angle = math.radians(augment.rotate * spread[0])
    shear = math.tan(math.radians(augment.shear * spread[1]))
    low, high = augment.zoom or (1.0, 1.0)
    zoom = math.exp(math.log(low) + (math.log(high) - math.log(low)) * draws[2])
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    linear = turn @ np.array([[1.0, shear], [0.0, 1.0]]) / zoom
    return np.column_stack([linear, augment.shift * spread[3:5]])


def apply_affine(pixels: Pixels, matrix: Matrix) -> Pixels:
    """Bilinear; what lies outside is the mirrored image, so that no black corners tell what was done."""
    size = pixels.shape[0]
    corners = matrix @ np.array([[-0.5, 0.5, -0.5, 0.5], [-0.5, -0.5, 0.5, 0.5], [1, 1, 1, 1]])
    margin = int(np.clip(math.ceil((np.abs(corners).max() - 0.5) * size) + 1, 0, size - 1))
    padded = np.pad(pixels, ((margin, margin), (margin, margin), (0, 0)), "reflect")
    linear = matrix[:, :2]
    offset = margin + size / 2 + matrix[:, 2] * size - linear @ np.full(2, size / 2)
    data = (*linear[0], offset[0], *linear[1], offset[1])
    image = Image.fromarray(padded).transform(
        (size, size), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR
    )
    return np.asarray(image)


def apply_color(pixels: Pixels, color: Any, draws: Draws) -> Pixels:
    """Brightness, contrast, saturation and hue are linear, so all four are one matrix."""
    spread = 2 * draws - 1
    brightness = 1 + color.brightness * spread[0]
    contrast = 1 + color.contrast * spread[1]
    saturation = 1 + color.saturation * spread[2]
    hue = 2 * math.pi * color.hue * spread[3]
    turn = np.array([[1, 0, 0], [0, math.cos(hue), -math.sin(hue)], [0, math.sin(hue), math.cos(hue)]])
    mix = saturation * np.eye(3) + (1 - saturation) * np.outer(np.ones(3), _LUMINANCE)
    matrix = _FROM_YIQ @ turn @ _TO_YIQ @ mix * (brightness * contrast)
    image = Image.fromarray(pixels)
    mean = float(np.asarray(image.convert("L")).mean())
    offset = np.full((3, 1), (1 - contrast) * brightness * mean)
    return np.asarray(image.convert("RGB", tuple(np.hstack([matrix, offset]).ravel())))


def apply_erase(pixels: Pixels, erase: Any, draws: Draws, noise_key: int) -> Pixels:
    """Random erasing: a rectangle of side ratio 0.3 to 3.3 becomes noise."""
    if draws[0] >= erase.probability:
        return pixels
    size = pixels.shape[0]
    area = size * size * (erase.area[0] + (erase.area[1] - erase.area[0]) * draws[1])
    ratio = math.exp(math.log(0.3) + (math.log(1 / 0.3) - math.log(0.3)) * draws[2])
    height = min(size, max(1, round(math.sqrt(area * ratio))))
    width = min(size, max(1, round(math.sqrt(area / ratio))))
    top, left = int((size - height + 1) * draws[3]), int((size - width + 1) * draws[4])
    count = height * width * 3
    noise = hashes(noise_key, np.arange(-(-count // 8))).astype("<u8").view(np.uint8)[:count]
    out = pixels.copy()
    out[top : top + height, left : left + width] = noise.reshape(height, width, 3)
    return out


def apply_randaugment(pixels: Pixels, setting: Any, draws: Draws) -> Pixels:
    """Operations picked with equal probability, one after the other, all of the same magnitude."""
    image = Image.fromarray(pixels)
    for choice, sign in draws.reshape(setting.operations, RANDAUGMENT_DRAWS):
        operation = _OPERATIONS[int(choice * len(_OPERATIONS))]
        image = operation(image, setting.magnitude / 10, 1 if sign < 0.5 else -1)
    return np.asarray(image)


Operation = Callable[[Image.Image, float, int], Image.Image]
_GRAY = (128, 128, 128)


def _enhance(kind: Any) -> Operation:
    return lambda image, strength, sign: kind(image).enhance(1 + 0.9 * strength * sign)


def _warp(a: float = 0, b: float = 0, x: float = 0, y: float = 0) -> Operation:
    """Shear by `a` (along x) and `b` (along y), shift by `x` and `y` of the side, at full strength."""

    def operation(image: Image.Image, strength: float, sign: int) -> Image.Image:
        factor, size = strength * sign, image.width
        data = (1, a * factor, x * factor * size, b * factor, 1, y * factor * size)
        return image.transform(
            image.size, Image.Transform.AFFINE, data, Image.Resampling.BILINEAR, fillcolor=_GRAY
        )

    return operation


_OPERATIONS: tuple[Operation, ...] = (
    lambda image, strength, sign: image,
    lambda image, strength, sign: ImageOps.autocontrast(image),
    lambda image, strength, sign: ImageOps.equalize(image),
    lambda image, strength, sign: image.rotate(
        30 * strength * sign, Image.Resampling.BILINEAR, fillcolor=_GRAY
    ),
    lambda image, strength, sign: ImageOps.solarize(image, round(256 * (1 - strength))),
    lambda image, strength, sign: ImageOps.posterize(image, 8 - round(4 * strength)),
    _enhance(ImageEnhance.Color),
    _enhance(ImageEnhance.Contrast),
    _enhance(ImageEnhance.Brightness),
    _enhance(ImageEnhance.Sharpness),
    _warp(a=0.3),
    _warp(b=0.3),
    _warp(x=0.3),
    _warp(y=0.3),
)
