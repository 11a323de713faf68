"""From the contents of files to squares of pixels: a window of each image, scaled to the model's size.

    read_files     paths → contents
    upright_sizes  contents → sizes, from which the windows are drawn
    fill           contents, windows, flips → uint8 [n, size, size, 3]

These are traced: stages of the input pipeline. JPEG and raw pixels are decoded by the compiled operation of `op/`, or
by TensorFlow's operations with the same bits. All else goes through Pillow, which knows palettes, 16 bits, alpha and
CMYK. A sample that cannot be used gets ok = False and zeros; `render` tells the reason.
"""

import struct
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from distxcept.data import op
from distxcept.data.header import Header, inspect
from distxcept.data.op import plain
from distxcept.data.op.plain import DONE, NEEDS_PILLOW
from distxcept.data.pillow import decode_with_pillow, turn_upright
from distxcept.data.retry import RETRY_SECONDS
from distxcept.data.sources.base import BadSample, Pixels, Sample
from distxcept.data.window import Choose, Window, centre_window

BROKEN_JPEG = "broken JPEG: the image data cannot be decoded"


@dataclass(frozen=True)
class View:
    """What is to be seen of an image."""

    choose: Choose = centre_window
    flip: bool = False
    interpolation: str = "bilinear"

    @classmethod
    def of_evaluation(cls, evaluate: Any) -> "View":
        """What validation and predictions see; `evaluate` is the config's data.evaluate."""
        return cls(partial(centre_window, crop=evaluate.crop), interpolation=evaluate.interpolation)


def encode_raw(pixels: Pixels) -> bytes:
    """Pixels uint8 [height, width, 3] as one string, so that they go through the pipeline like files."""
    height, width = pixels.shape[:2]
    return struct.pack("<4sii", plain.RAW_MAGIC, height, width) + pixels.tobytes()


def read_files(
    paths: tf.Tensor, offsets: tf.Tensor | None = None, lengths: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Traced. Contents (tf.string [n]) and ok (bool [n]) of files, or of byte ranges (int64; length -1: to the end).

    An empty path is padding. What cannot be read, or is no regular file, is not ok; errors that may pass by themselves
    are retried. Paths must depend on an input of the graph, or TensorFlow may read them once for all.
    """
    offsets = tf.zeros_like(paths, tf.int64) if offsets is None else offsets
    lengths = tf.fill(tf.shape(paths), tf.constant(-1, tf.int64)) if lengths is None else lengths
    library = op.library()
    if library is not None:
        contents, ok = library.distxcept_read_files(
            paths=paths, offsets=offsets, lengths=lengths, pauses=list(RETRY_SECONDS)
        )
    else:
        contents, ok = plain.read_files(paths, offsets, lengths)
    return tf.ensure_shape(contents, paths.shape), tf.ensure_shape(ok, paths.shape)


def checksums(contents: tf.Tensor) -> tf.Tensor:
    """Traced. CRC-32C of each of the contents, int64 [n]."""
    library = op.library()
    sums = plain.checksums(contents) if library is None else library.distxcept_checksum(contents=contents)
    return tf.ensure_shape(sums, contents.shape)


def upright_sizes(contents: tf.Tensor, *, raw: bool, max_pixels: int) -> tf.Tensor:
    """Traced. Height and width of the upright images, int32 [n, 2]; 0, 0 for what cannot be used."""
    library = op.library()
    if library is not None:
        sizes, _ = library.distxcept_inspect(contents=contents, raw=raw, max_pixels=max_pixels)
    else:
        sizes, _ = plain.inspect_all(contents, raw=raw, max_pixels=max_pixels)
    return tf.ensure_shape(sizes, [*contents.shape, 2])


def fill(
    contents: tf.Tensor,
    windows: tf.Tensor,
    flips: tf.Tensor,
    *,
    size: int,
    raw: bool,
    max_pixels: int,
    interpolation: str = "bilinear",
) -> tuple[tf.Tensor, tf.Tensor]:
    """Traced. Images uint8 [n, size, size, 3] and ok [n]: these windows (top, left, height, width) of the upright
    images, scaled, mirrored where `flips` says so. Zeros where not ok."""
    squares = partial(_fill, size=size, max_pixels=max_pixels, interpolation=interpolation)
    images, status = squares(contents, windows, flips, raw=raw)
    images = tf.ensure_shape(images, [*contents.shape, size, size, 3])
    status = tf.ensure_shape(status, contents.shape)
    if raw:
        return images, tf.equal(status, DONE)
    others = tf.equal(status, NEEDS_PILLOW)

    def decode(contents: Any, windows: Any) -> tuple[NDArray[Any], NDArray[np.int32]]:
        return _decode_others(contents, windows, max_pixels)

    def with_pillow() -> tuple[tf.Tensor, tf.Tensor]:
        places = tf.where(others)
        chosen = [tf.boolean_mask(part, others) for part in (contents, windows, flips)]
        # With `stateful` tf.data would run one call at a time where operations have to be deterministic.
        patches, whole = tf.numpy_function(decode, chosen[:2], [tf.string, tf.int32], stateful=False)
        patches, whole = tf.ensure_shape(patches, [None]), tf.ensure_shape(whole, [None, 4])
        some, found = squares(patches, whole, chosen[2], raw=True)
        return (
            tf.tensor_scatter_nd_update(images, places, some),
            tf.tensor_scatter_nd_update(status, places, found),
        )

    images, status = tf.cond(tf.reduce_any(others), with_pillow, lambda: (images, status))
    return images, tf.equal(status, DONE)


def _fill(
    contents: tf.Tensor,
    windows: tf.Tensor,
    flips: tf.Tensor,
    *,
    size: int,
    raw: bool,
    max_pixels: int,
    interpolation: str,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Traced or eager. Images and the status of each."""
    library = op.library() if interpolation == "bilinear" else None
    if library is not None:
        return library.distxcept_fill(
            contents=contents, windows=windows, flips=flips, size=size, raw=raw, max_pixels=max_pixels
        )
    return plain.fill(
        *(contents, windows, flips), size=size, raw=raw, max_pixels=max_pixels, interpolation=interpolation
    )


def _decode_others(contents: Any, windows: Any, max_pixels: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The windows as raw pixels, cut out by Pillow, and where they are in that: all of it, or nothing."""
    patches, whole = np.full(len(contents), b"", object), np.zeros((len(contents), 4), np.int32)
    for place, (content, (top, left, height, width)) in enumerate(zip(contents, windows, strict=True)):
        try:
            pixels = decode_with_pillow(content, inspect(content, max_pixels=max_pixels))
        except BadSample:
            continue
        patches[place] = encode_raw(pixels[top : top + height, left : left + width])
        whole[place, 2:] = height, width
    return patches, whole


def render(sample: Sample, view: View, out: Pixels, *, max_pixels: int) -> int:
    """Eager. Fills `out` [size, size, 3] with this view of the sample; raises `BadSample` with the reason.

    The bits are those of `fill`. Returns how many pixels the stored image has.
    """
    header = None if sample.encoded is None else inspect(sample.encoded, max_pixels=max_pixels)
    if header is None:
        assert sample.pixels is not None
        height, width = sample.pixels.shape[:2]
    else:
        width, height = header.upright
    window = view.choose(width, height)
    raw = header is None or not _is_direct(header)
    content = sample.encoded
    if raw:
        pixels = decode_whole(sample, max_pixels=max_pixels)
        bottom, right = window.top + window.height, window.left + window.width
        content = encode_raw(pixels[window.top : bottom, window.left : right])
        window = Window(0, 0, window.height, window.width)
    with tf.device("/CPU:0"):
        images, status = _fill(
            tf.constant([content]),
            tf.constant([[window.top, window.left, window.height, window.width]], tf.int32),
            tf.constant([view.flip]),
            size=out.shape[0],
            raw=raw,
            max_pixels=max_pixels,
            interpolation=view.interpolation,
        )
    if int(status[0]) != DONE:
        raise BadSample(BROKEN_JPEG)
    out[...] = images[0].numpy()
    return width * height


def decode_whole(sample: Sample, *, max_pixels: int) -> Pixels:
    """Eager. The whole upright image as RGB, in its own size: for caches, checks and previews."""
    if sample.encoded is None:
        assert sample.pixels is not None
        return sample.pixels
    header = inspect(sample.encoded, max_pixels=max_pixels)
    if not _is_direct(header):
        return decode_with_pillow(sample.encoded, header)
    try:
        with tf.device("/CPU:0"):
            stored = tf.raw_ops.DecodeJpeg(
                contents=tf.constant(sample.encoded), channels=3, dct_method="INTEGER_FAST"
            )
    except tf.errors.InvalidArgumentError:
        raise BadSample(BROKEN_JPEG) from None
    return turn_upright(stored.numpy(), header.orientation)


def _is_direct(header: Header) -> bool:
    return header.kind == "jpeg" and header.components in (1, 3)
