"""From a stored sample to a square of pixels: a window of the image, scaled to the model's size.

JPEG takes the fast road: the window is cut while decoding, at the smallest of the scales 1/8, 1/4, 1/2, 1 that
still covers the target. Everything else goes through Pillow, which knows palettes, 16 bits, alpha and CMYK.
Both end in the same bilinear scaling. Runs in the pipeline's threads, outside of any graph, so that an error is
an exception of one sample and never of the run.
"""

import io
import math
import threading
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from PIL import Image, ImageOps

from distxcept.data.augment import View
from distxcept.data.header import Header, inspect
from distxcept.data.sources.base import BadSample, Pixels, Sample
from distxcept.data.window import Choose, Window

# Declared pixels are checked by `inspect` against data.max_pixels; Pillow's fixed limit would only add a second rule.
Image.MAX_IMAGE_PIXELS = None

MAX_SIDE = 65_535
"""No JPEG is larger: asking for this size means full scale."""

_PILLOW_FORMATS = {"jpeg": "JPEG", "png": "PNG", "gif": "GIF", "bmp": "BMP", "webp": "WEBP"}

# EXIF orientation → (transpose, then flip up-down, then flip left-right) from stored to upright pixels.
_TO_UPRIGHT = {
    1: (False, False, False),
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}


def render(sample: Sample, view: View, out: Pixels, *, max_pixels: int) -> int:
    """Fills `out` [size, size, 3] with this view of the sample; raises `BadSample` with the reason.

    Returns how many pixels the stored image has.
    """
    size = out.shape[0]
    if sample.encoded is None:
        assert sample.pixels is not None
        height, width = sample.pixels.shape[:2]
        patch = _cut(sample.pixels, view.choose)
    else:
        header = inspect(sample.encoded, max_pixels=max_pixels)
        width, height = header.width, header.height
        if header.kind == "jpeg" and header.components in (1, 3):
            patch = _decode_jpeg(sample.encoded, header, view.choose, size)
        else:
            patch = _cut(_decode_other(sample.encoded, header), view.choose)
    if view.flip or view.effects:
        square = _scratch.square(size)
        _scale_into(patch, square)
        revise(square, view, out)
    else:
        _scale_into(patch, out)
    return width * height


def revise(square: Pixels, view: View, out: Pixels) -> None:
    """Flip and effects, on an image that already has its size."""
    if view.flip:
        # One channel at a time: a mirrored copy of three interleaved bytes is four times as slow.
        for channel in range(3):
            out[..., channel] = square[:, ::-1, channel]
    else:
        out[...] = square
    if view.effects:
        pixels = out
        for effect in view.effects:
            pixels = effect(pixels)
        out[...] = pixels


def decode_whole(sample: Sample, *, max_pixels: int) -> Pixels:
    """The whole upright image as RGB, in its own size: for caches, checks and previews."""
    if sample.encoded is None:
        assert sample.pixels is not None
        return sample.pixels
    header = inspect(sample.encoded, max_pixels=max_pixels)
    if header.kind == "jpeg" and header.components in (1, 3):
        return _decode_jpeg(
            sample.encoded, header, lambda width, height: Window(0, 0, height, width), MAX_SIDE
        )
    return _decode_other(sample.encoded, header)


def _decode_jpeg(data: bytes, header: Header, choose: Choose, size: int) -> Pixels:
    width, height = header.upright
    window = choose(width, height)
    ratio = next((r for r in (8, 4, 2) if min(window.height, window.width) >= r * size), 1)
    stored = _stored_window(window, header, ratio)
    try:
        patch = tf.raw_ops.DecodeAndCropJpeg(
            contents=data, crop_window=stored, channels=3, ratio=ratio, dct_method="INTEGER_FAST"
        )
    except tf.errors.InvalidArgumentError:
        raise BadSample("broken JPEG: the image data cannot be decoded") from None
    pixels = np.asarray(memoryview(patch))
    if header.orientation == 1:
        return pixels
    transpose, flip_rows, flip_columns = _TO_UPRIGHT[header.orientation]
    pixels = pixels.swapaxes(0, 1) if transpose else pixels
    return pixels[:: -1 if flip_rows else 1, :: -1 if flip_columns else 1]


def _stored_window(window: Window, header: Header, ratio: int) -> list[int]:
    """The window in the coordinates of the stored pixels at the scale 1/ratio: top, left, height, width."""
    transpose, flip_rows, flip_columns = _TO_UPRIGHT[header.orientation]
    width, height = header.upright
    top = height - window.top - window.height if flip_rows else window.top
    left = width - window.left - window.width if flip_columns else window.left
    bottom, right = -(-(top + window.height) // ratio), -(-(left + window.width) // ratio)
    top, left = top // ratio, left // ratio
    if transpose:
        return [left, top, right - left, bottom - top]
    return [top, left, bottom - top, right - left]


def _decode_other(data: bytes, header: Header) -> Pixels:
    """The whole upright image as RGB. An animation gives its first frame, alpha is dropped."""
    try:
        with Image.open(io.BytesIO(data), formats=[_PILLOW_FORMATS[header.kind]]) as image:
            if image.width * image.height > header.width * header.height:
                raise BadSample(f"holds {image.width} × {image.height} pixels, more than it declares")
            upright = ImageOps.exif_transpose(image)
            if upright.mode.startswith("I"):
                # 16-bit grayscale: keep the high byte, where Pillow's conversion would clip.
                gray = (np.asarray(upright).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
                return np.repeat(gray[..., None], 3, axis=2)
            return np.asarray(upright.convert("RGB"))
    except BadSample:
        raise
    except (
        Exception
    ) as error:  # Pillow's decoders raise whatever comes: SyntaxError, struct.error, EOFError, …
        raise BadSample(f"broken {header.kind.upper()}: {error or type(error).__name__}") from None


def _cut(pixels: Pixels, choose: Choose) -> Pixels:
    window = choose(pixels.shape[1], pixels.shape[0])
    return pixels[window.top : window.top + window.height, window.left : window.left + window.width]


def _scale_into(patch: Pixels, out: Pixels) -> None:
    size = out.shape[0]
    reduction = min(patch.shape[:2]) // size
    if reduction >= 2:
        # Averaging whole blocks first, as the JPEG scales do: bilinear scaling alone would skip pixels.
        patch = np.asarray(Image.fromarray(patch).reduce(reduction))
    if patch.shape == out.shape:
        out[...] = patch
        return
    # Float in: the kernel's vector path for bytes is slower than this conversion and the float path together.
    source = _scratch.floats(patch.shape)
    source[...] = patch
    images = tf.experimental.dlpack.from_dlpack(source[None].__dlpack__())
    scaled = tf.raw_ops.ResizeBilinear(images=images, size=[size, size], half_pixel_centers=True)
    np.rint(np.asarray(memoryview(scaled))[0], out=out, casting="unsafe")


class _Scratch(threading.local):
    """Buffers of each thread, kept between samples: fresh memory would cost as much as the scaling."""

    _KEPT = 4 * 2**20

    def __init__(self) -> None:
        self._floats = aligned_empty((self._KEPT,), np.float32)
        self._square = np.empty((0, 0, 3), np.uint8)

    def floats(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        count = math.prod(shape)
        if count > self._KEPT:
            return aligned_empty(shape, np.float32)
        return self._floats[:count].reshape(shape)

    def square(self, size: int) -> Pixels:
        if self._square.shape[0] != size:
            self._square = np.empty((size, size, 3), np.uint8)
        return self._square


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array that TensorFlow can use in place: its kernels expect 64-byte boundaries."""
    wanted = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(wanted + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + wanted].view(dtype).reshape(shape)


_scratch = _Scratch()
