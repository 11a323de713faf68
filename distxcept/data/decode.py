"""From a stored sample to a square of pixels: a window of the image, scaled to the model's size.

JPEG takes the fast road: the window is cut while decoding, at the smallest of the scales 1/8, 1/4, 1/2, 1 that
still covers the target. Everything else goes through Pillow, which knows palettes, 16 bits, alpha and CMYK.
Both end in the same bilinear scaling. Runs in the pipeline's threads, outside of any graph, so that an error is
an exception of one sample and never of the run.
"""

import math
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from PIL import Image

from distxcept.data.augment import View
from distxcept.data.header import Header, inspect
from distxcept.data.pillow import decode_with_pillow
from distxcept.data.sources.base import BadSample, Pixels, Sample
from distxcept.data.window import Choose, Window

TOGETHER = (16, 8)
"""Images that one call of TensorFlow decodes; what is left over goes one at a time."""

_tracing = threading.Lock()

MAX_SIDE = 65_535
"""No JPEG is larger: asking for this size means full scale."""

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
            patch = _cut(decode_with_pillow(sample.encoded, header), view.choose)
    if view.flip or view.effects:
        square = _scratch.square(size)
        _scale_into(patch, square)
        revise(square, view, out)
    else:
        _scale_into(patch, out)
    return width * height


def render_many(
    samples: Sequence[Sample], views: Sequence[View], outs: Sequence[Pixels], *, max_pixels: int
) -> list[int | Exception]:
    """`render` for each, with the same pixels; an exception stands in the place of the sample it belongs to.

    Plain JPEG files go through TensorFlow some at a time: one call, without Python in between, costs a quarter less.
    """
    results: list[int | Exception] = [0] * len(samples)
    together: list[tuple[int, NDArray[np.int32], int]] = []
    alone: list[int] = []
    for place, (sample, view) in enumerate(zip(samples, views, strict=True)):
        try:
            window, pixels = _plain_window(sample, view, outs[place].shape[0], max_pixels)
        except BadSample as error:
            results[place] = error
            continue
        if window is None:
            alone.append(place)
        else:
            together.append((place, window, pixels))
    for count in TOGETHER:
        while len(together) >= count:
            group, together = together[:count], together[count:]
            if _render_together(samples, views, outs, group):
                for place, _, pixels in group:
                    results[place] = pixels
            else:
                alone += [place for place, _, _ in group]
    for place in [*alone, *(place for place, _, _ in together)]:
        try:
            results[place] = render(samples[place], views[place], outs[place], max_pixels=max_pixels)
        except MemoryError:
            raise
        except Exception as error:  # whatever a file does to a decoder is that sample's matter alone
            results[place] = error
    return results


def _plain_window(
    sample: Sample, view: View, size: int, max_pixels: int
) -> tuple[NDArray[np.int32] | None, int]:
    """The window of an upright JPEG that is decoded at full scale, and its pixels; no window for anything else."""
    if sample.encoded is None:
        return None, 0
    header = inspect(sample.encoded, max_pixels=max_pixels)
    if header.kind != "jpeg" or header.components not in (1, 3) or header.orientation != 1:
        return None, 0
    window = view.choose(header.width, header.height)
    if min(window.height, window.width) >= 2 * size:
        return None, 0
    return _stored_window(window, header, 1), header.width * header.height


def _render_together(
    samples: Sequence[Sample],
    views: Sequence[View],
    outs: Sequence[Pixels],
    group: list[tuple[int, NDArray[np.int32], int]],
) -> bool:
    """False if one of them is broken: then each has to be tried alone."""
    size = outs[group[0][0]].shape[0]
    contents = [tf.constant(samples[place].encoded) for place, _, _ in group]
    windows = tf.constant(np.stack([window for _, window, _ in group]))
    try:
        scaled = _together_function(size, len(group))(*contents, windows)
    except tf.errors.InvalidArgumentError:
        return False
    for (place, _, _), pixels in zip(group, scaled, strict=True):
        _round_into(np.asarray(memoryview(pixels))[0], views[place], outs[place])
    return True


@cache
def _together_function(size: int, count: int) -> Any:
    """Decodes and scales several images, one after the other: their threads are ours, and memory stays small."""
    signature = [tf.TensorSpec([], tf.string)] * count + [tf.TensorSpec([count, 4], tf.int32)]

    def several(*arguments: tf.Tensor) -> list[tf.Tensor]:
        scaled: list[tf.Tensor] = []
        for number, window in enumerate(tf.unstack(arguments[-1])):
            with tf.control_dependencies(scaled[-1:]):
                patch = tf.raw_ops.DecodeAndCropJpeg(
                    contents=arguments[number], crop_window=window, channels=3, dct_method="INTEGER_FAST"
                )
                # Bytes to floats plus a half in one pass; a cast would call up TensorFlow's whole thread pool.
                floats = tf.raw_ops.Dequantize(
                    input=tf.bitcast(patch, tf.quint8), min_range=0.5, max_range=255.5, mode="MIN_COMBINED"
                )
                images = tf.expand_dims(floats, 0)
                scaled.append(
                    tf.raw_ops.ResizeBilinear(images=images, size=[size, size], half_pixel_centers=True)
                )
        return scaled

    with _tracing, tf.device("/CPU:0"):
        return tf.function(several, input_signature=signature, autograph=False).get_concrete_function()


def _round_into(scaled: NDArray[np.float32], view: View, out: Pixels) -> None:
    """`scaled` is half a grey level too bright all over, so that cutting off the fraction is rounding."""
    if not view.flip and not view.effects:
        np.copyto(out, scaled, casting="unsafe")
        return
    square = _scratch.square(out.shape[0])
    np.copyto(square, scaled, casting="unsafe")
    revise(square, view, out)


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
    return decode_with_pillow(sample.encoded, header)


def _decode_jpeg(data: bytes, header: Header, choose: Choose, size: int) -> Pixels:
    width, height = header.upright
    window = choose(width, height)
    ratio = next((r for r in (8, 4, 2) if min(window.height, window.width) >= r * size), 1)
    stored = _stored_window(window, header, ratio)
    try:
        # Tensors, not Python values: those would take TensorFlow's slow way to call an operation.
        patch = tf.raw_ops.DecodeAndCropJpeg(
            contents=tf.constant(data),
            crop_window=tf.constant(stored),
            channels=3,
            ratio=ratio,
            dct_method="INTEGER_FAST",
        )
    except tf.errors.InvalidArgumentError:
        raise BadSample("broken JPEG: the image data cannot be decoded") from None
    pixels = np.asarray(memoryview(patch))
    if header.orientation == 1:
        return pixels
    transpose, flip_rows, flip_columns = _TO_UPRIGHT[header.orientation]
    pixels = pixels.swapaxes(0, 1) if transpose else pixels
    return pixels[:: -1 if flip_rows else 1, :: -1 if flip_columns else 1]


def _stored_window(window: Window, header: Header, ratio: int) -> NDArray[np.int32]:
    """The window in the coordinates of the stored pixels at the scale 1/ratio: top, left, height, width."""
    transpose, flip_rows, flip_columns = _TO_UPRIGHT[header.orientation]
    width, height = header.upright
    top = height - window.top - window.height if flip_rows else window.top
    left = width - window.left - window.width if flip_columns else window.left
    bottom, right = -(-(top + window.height) // ratio), -(-(left + window.width) // ratio)
    top, left = top // ratio, left // ratio
    if transpose:
        return np.array([left, top, right - left, bottom - top], np.int32)
    return np.array([top, left, bottom - top, right - left], np.int32)


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
    # Float in: the kernel's path for bytes is slower than this conversion and the float path together. Half a grey
    # level more goes through bilinear scaling unchanged, and makes cutting off the fraction a rounding.
    source = _scratch.floats(patch.shape)
    source[...] = patch
    source += 0.5
    images = tf.experimental.dlpack.from_dlpack(source[None].__dlpack__())
    scaled = tf.raw_ops.ResizeBilinear(images=images, size=_side(size), half_pixel_centers=True)
    np.copyto(out, np.asarray(memoryview(scaled))[0], casting="unsafe")


@cache
def _side(size: int) -> tf.Tensor:
    """A tensor made once: from a list it would cost a tenth of the whole image each time."""
    with tf.device("/CPU:0"):
        return tf.constant([size, size], tf.int32)


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
