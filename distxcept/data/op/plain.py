"""What images.cc does, in Python with TensorFlow's operations: slower, with the same bits.

For machines without the compiled operation, for bicubic scaling, and as the reference of the tests. In a graph each is a
call of Python, marked as without state: where operations have to be deterministic, tf.data calls those in parallel.
"""

import math
import os
import stat
import threading
from typing import Any

import google_crc32c
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from PIL import Image

from distxcept.data import files
from distxcept.data.header import TO_UPRIGHT, inspect
from distxcept.data.pillow import turn_upright
from distxcept.data.retry import read_with_retries
from distxcept.data.sources.base import BadSample, Pixels, Sample
from distxcept.data.window import Window

DONE, BROKEN, NEEDS_PILLOW = 0, 1, 2
"""Status of an image, as in images.cc."""
UNUSABLE, DIRECT, OTHER = 0, 1, 2
"""Kind of a content, as in header.h: cannot be used, decoded by the operation, decoded by Pillow."""
RAW_MAGIC, RAW_HEADER = b"DXRW", 12
MAX_BYTES = 2**31 - 1
"""Larger contents are refused: the JPEG decoder counts bytes in 32 bits."""


def read_files(paths: tf.Tensor, offsets: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Traced. Contents and ok, read by Python."""
    return tf.numpy_function(_read_all, [paths, offsets, lengths], [tf.string, tf.bool], stateful=False)


def checksums(contents: tf.Tensor) -> tf.Tensor:
    """Traced or eager. CRC-32C of each, int64 [n]."""
    return tf.numpy_function(
        lambda all_: np.array([google_crc32c.value(one) for one in all_], np.int64),
        [contents],
        tf.int64,
        stateful=False,
    )


def _read_all(paths: Any, offsets: Any, lengths: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    contents = np.full(len(paths), b"", object)
    ok = np.zeros(len(paths), np.bool_)
    for place, (path, offset, length) in enumerate(zip(paths, offsets, lengths, strict=True)):
        content = _read_with_retries(path, int(offset), int(length)) if path else None
        if content is not None:
            contents[place], ok[place] = content, True
    return contents, ok


def _read_with_retries(path: bytes, offset: int, length: int) -> bytes | None:
    try:
        return read_with_retries(lambda: Sample(encoded=_read_range(path, offset, length))).encoded
    except (OSError, BadSample, ValueError):  # ValueError: a zero byte in the path
        return None


def _read_range(path: bytes, offset: int, length: int) -> bytes:
    if files.is_remote(path):
        if length < 0 and files.is_dir(os.fsdecode(path)):
            raise BadSample("a folder")
        size = files.size(os.fsdecode(path)) if length < 0 else offset + length
    else:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise BadSample("not a regular file")
        size = found.st_size
    wanted = size - offset if length < 0 else length
    if offset < 0 or offset > size or wanted > size - offset or wanted > MAX_BYTES:
        raise BadSample("not within the file")
    content = files.read(path, offset, wanted) if wanted else b""
    if length >= 0 and len(content) != length:
        raise BadSample("the file is shorter")
    return content


def inspect_all(contents: tf.Tensor, *, raw: bool, max_pixels: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Traced or eager. Sizes of the upright images [n, 2], and kind and EXIF orientation [n, 2]; int32."""

    def run(contents: Any) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        rows = [_describe(content, raw, max_pixels) for content in contents]
        sizes, details = np.array(rows, np.int32).reshape(-1, 2, 2).swapaxes(0, 1)
        return sizes.copy(), details.copy()

    return tf.numpy_function(run, [contents], [tf.int32, tf.int32], stateful=False)


def _describe(content: bytes, raw: bool, max_pixels: int) -> tuple[int, int, int, int]:
    if raw:
        height, width = _raw_size(content)
        return height, width, DIRECT if height else UNUSABLE, 1
    try:
        header = inspect(content, max_pixels=max_pixels)
    except BadSample:
        return 0, 0, UNUSABLE, 1
    width, height = header.upright
    if max(width, height) >= 2**31 or len(content) > MAX_BYTES:
        return 0, 0, UNUSABLE, 1
    direct = header.kind == "jpeg" and header.components in (1, 3)
    return height, width, DIRECT if direct else OTHER, header.orientation


def _raw_size(content: bytes) -> tuple[int, int]:
    """Height and width of raw pixels; 0, 0 if they are none."""
    if content[:4] != RAW_MAGIC or len(content) < RAW_HEADER:
        return 0, 0
    height, width = (int.from_bytes(content[at : at + 4], "little", signed=True) for at in (4, 8))
    if height < 1 or width < 1 or RAW_HEADER + 3 * height * width != len(content):
        return 0, 0
    return height, width


def fill(
    contents: tf.Tensor,
    windows: tf.Tensor,
    flips: tf.Tensor,
    *,
    size: int,
    raw: bool,
    max_pixels: int,
    interpolation: str,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Traced or eager. Squares uint8 [n, size, size, 3] and the status of each.

    Python calls TensorFlow's operations for one image after the other. In a graph a broken image would fail all of
    them; a dataset for each that ignores errors has state, so tf.data would not call it in parallel.
    """

    def run(contents: Any, windows: Any, flips: Any) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        images = np.zeros((len(contents), size, size, 3), np.uint8)
        status = np.zeros(len(contents), np.int32)
        with tf.device("/CPU:0"):
            for place, (content, edges) in enumerate(zip(contents, windows.tolist(), strict=True)):
                patch, status[place] = _patch(content, Window(*edges), size, raw, max_pixels)
                if patch is not None:
                    images[place] = scale(patch, size, flips[place], interpolation)
        return images, status

    return tf.numpy_function(run, [contents, windows, flips], [tf.uint8, tf.int32], stateful=False)


def _patch(
    content: bytes, window: Window, size: int, raw: bool, max_pixels: int
) -> tuple[Pixels | None, int]:
    """The pixels of the window, not yet scaled, and the status."""
    height, width, kind, orientation = _describe(content, raw, max_pixels)
    if not _within(window, height, width):
        return None, BROKEN
    if kind == OTHER:
        return None, NEEDS_PILLOW
    if raw:
        return _cut_raw(content, window, height, width), DONE
    try:
        return _decode(content, window, height, width, orientation, size), DONE
    except tf.errors.InvalidArgumentError:
        return None, BROKEN
    except tf.errors.ResourceExhaustedError as error:
        raise MemoryError(str(error)) from None  # of Python's errors TensorFlow knows this one


def _within(window: Window, height: int, width: int) -> bool:
    return (
        min(window.top, window.left) >= 0
        and min(window.height, window.width) > 0
        and window.top + window.height <= height
        and window.left + window.width <= width
    )


def _cut_raw(content: bytes, window: Window, height: int, width: int) -> Pixels:
    pixels = np.frombuffer(content, np.uint8, offset=RAW_HEADER).reshape(height, width, 3)
    return pixels[window.top : window.top + window.height, window.left : window.left + window.width]


def _decode(content: bytes, window: Window, height: int, width: int, orientation: int, size: int) -> Pixels:
    """The window of a JPEG, upright, at the smallest of the scales 1/8, 1/4, 1/2, 1 that still covers the target."""
    ratio = next((r for r in (8, 4, 2) if min(window.height, window.width) >= r * size), 1)
    transpose, flip_rows, flip_columns = TO_UPRIGHT[orientation]
    top = height - window.top - window.height if flip_rows else window.top
    left = width - window.left - window.width if flip_columns else window.left
    bottom, right = -(-(top + window.height) // ratio), -(-(left + window.width) // ratio)
    top, left = top // ratio, left // ratio
    crop = (left, top, right - left, bottom - top) if transpose else (top, left, bottom - top, right - left)
    patch = tf.raw_ops.DecodeAndCropJpeg(
        contents=tf.constant(content),
        crop_window=tf.constant(np.array(crop, np.int32)),
        channels=3,
        ratio=ratio,
        dct_method="INTEGER_FAST",
    )
    return turn_upright(patch.numpy(), orientation)


def scale(patch: Pixels, size: int, flip: bool, interpolation: str) -> Pixels:
    """A square from uint8 [height, width, 3], pixel centres at one half, rounded to grey levels."""
    if interpolation == "bicubic":
        smooth = tf.image.resize(patch, [size, size], "bicubic", antialias=True)
        scaled = smooth.numpy().round().clip(0, 255).astype(np.uint8)
    else:
        factor = min(patch.shape[:2]) // size
        if factor > 1:
            # Averaging blocks first, as the JPEG scales do: bilinear scaling alone would skip pixels.
            patch = np.asarray(Image.fromarray(patch).reduce(factor))
        # Half a grey level more goes through bilinear scaling unchanged, and cutting off the fraction rounds.
        source = _scratch.floats((1, *patch.shape))
        source[...] = patch
        source += 0.5
        images = tf.experimental.dlpack.from_dlpack(source.__dlpack__())  # without a copy
        smooth = tf.raw_ops.ResizeBilinear(images=images, size=[size, size], half_pixel_centers=True)
        scaled = np.asarray(memoryview(smooth))[0].astype(np.uint8)
    if not flip:
        return scaled
    mirrored = np.empty_like(scaled)
    for channel in range(3):  # NumPy copies three bytes at a time four times as slowly
        mirrored[..., channel] = scaled[:, ::-1, channel]
    return mirrored


class _Scratch(threading.local):
    """A buffer of each thread, kept between images: fresh memory would cost as much as the scaling."""

    _KEPT = 4 * 2**20

    def __init__(self) -> None:
        self._floats = _aligned(self._KEPT)

    def floats(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        count = math.prod(shape)
        return (self._floats[:count] if count <= self._KEPT else _aligned(count)).reshape(shape)


def _aligned(count: int) -> NDArray[np.float32]:
    """An array that TensorFlow can use in place: its kernels expect 64-byte boundaries."""
    raw = np.empty(4 * count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4 * count].view(np.float32)


_scratch = _Scratch()
