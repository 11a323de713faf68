"""From pixels of any size to a square: bilinear, pixel centres at one half, rounded to the nearest grey level."""

import ctypes
import math
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from distxcept.data.scaling.build import library
from distxcept.data.sources.base import Pixels

Scale = Callable[[Pixels, Pixels, bool], None]
"""Scales the first into the second [size, size, 3], which is contiguous; mirrored if so told."""


def scale_into(patch: Pixels, out: Pixels, mirrored: bool = False) -> None:
    if patch.shape == out.shape:
        copy_into(out, patch, mirrored)
    else:
        (kernel() or scale_with_tensorflow)(patch, out, mirrored)


def scale_with_tensorflow(patch: Pixels, out: Pixels, mirrored: bool = False) -> None:
    """Half a grey level more goes through bilinear scaling unchanged, and makes cutting off the fraction a rounding."""
    # Float in: the kernel's path for bytes is slower than this conversion and the float path together.
    source = _scratch.floats(patch.shape)
    source[...] = patch
    source += 0.5
    images = tf.experimental.dlpack.from_dlpack(source[None].__dlpack__())
    with tf.device("/CPU:0"):
        scaled = tf.raw_ops.ResizeBilinear(images=images, size=_side(out.shape[0]), half_pixel_centers=True)
    pixels = np.asarray(memoryview(scaled))[0]
    if mirrored:
        copy_into(out, pixels.astype(np.uint8), mirrored=True)
    else:
        np.copyto(out, pixels, casting="unsafe")


@cache
def kernel() -> Scale | None:
    """The compiled kernel that belongs to this source and machine, if there is one."""
    return load(library())


def load(path: Path) -> Scale | None:
    """The kernel in this file; None if there is none, or if it gives other bits here than TensorFlow does."""
    try:
        function = ctypes.CDLL(str(path)).distxcept_scale
    except (OSError, AttributeError):
        return None
    function.argtypes = [
        *(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_int),
        *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
    ]

    def scale(patch: Pixels, out: Pixels, mirrored: bool) -> None:
        if patch.strides[1:] != (3, 1) or patch.strides[0] < 0:
            patch = np.ascontiguousarray(patch)
        assert out.flags.c_contiguous
        height, width = patch.shape[:2]
        # ctypes lets other threads run meanwhile.
        if function(_address(patch), patch.strides[0], height, width, _address(out), out.shape[0], mirrored):
            raise MemoryError(f"no memory to scale an image of {width} × {height} pixels")

    return scale if _same_bits(scale) else None


def _same_bits(scale: Scale) -> bool:
    """Ranks on different machines must agree, whichever way each of them takes."""
    for height, width, size in ((61, 83, 47), (20, 31, 67)):
        pixels = (np.arange(height * width * 3, dtype=np.uint32) * 2654435761 >> 24).astype(np.uint8)
        patch = pixels.reshape(height, width, 3)
        one, other = np.empty((2, size, size, 3), np.uint8)
        for mirrored in (False, True):
            scale(patch, one, mirrored)
            scale_with_tensorflow(patch, other, mirrored)
            if not np.array_equal(one, other):
                return False
    return True


def _address(pixels: Pixels) -> int:
    address: int = pixels.__array_interface__["data"][0]
    return address


def copy_into(out: Pixels, square: Pixels, mirrored: bool) -> None:
    if not mirrored:
        out[...] = square
        return
    # One channel at a time: a mirrored copy of three interleaved bytes is four times as slow.
    for channel in range(3):
        out[..., channel] = square[:, ::-1, channel]


@cache
def _side(size: int) -> tf.Tensor:
    """A tensor made once: from a list it would cost a tenth of the whole image each time."""
    with tf.device("/CPU:0"):
        return tf.constant([size, size], tf.int32)


class _Scratch(threading.local):
    """A buffer of each thread, kept between samples: fresh memory would cost as much as the scaling."""

    _KEPT = 4 * 2**20

    def __init__(self) -> None:
        self._floats = aligned_empty((self._KEPT,), np.float32)

    def floats(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        count = math.prod(shape)
        if count > self._KEPT:
            return aligned_empty(shape, np.float32)
        return self._floats[:count].reshape(shape)


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array that TensorFlow can use in place: its kernels expect 64-byte boundaries."""
    wanted = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(wanted + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + wanted].view(dtype).reshape(shape)


_scratch = _Scratch()
