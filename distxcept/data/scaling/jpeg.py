"""JPEG images to squares: one by one through TensorFlow's operation, or a group of them in one call of the kernel.

Both ways use TensorFlow's decoder and give the same bits. The group is for speed: called for each image, the operation
hands the interpreter's lock to and fro, and threads wait for each other (docs/speed.md).
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from distxcept.data.scaling.bilinear import scale_with_tensorflow
from distxcept.data.scaling.build import library
from distxcept.data.sources.base import BadSample, Pixels

BROKEN = "broken JPEG: the image data cannot be decoded"

# The layout of the decoder's options is no part of TensorFlow's promises; jpeg.cc has that of these versions.
_KNOWN_VERSIONS = ("2.21.",)
_DECODER = "_ZN10tensorflow4jpeg10UncompressEPKviRKNS0_15UncompressFlagsEPlSt8functionIFPhiiiEE"
_DONE, _BROKEN = 0, 1


class Crop(NamedTuple):
    """A window of an image at the scale 1/ratio, in stored pixels of that scale."""

    top: int
    left: int
    height: int
    width: int
    ratio: int


class Job(NamedTuple):
    data: bytes
    crop: Crop
    mirrored: bool
    out: Pixels
    """[size, size, 3], contiguous; the same size for all of a group."""


Fill = Callable[[Sequence[Job]], list[Exception | None]]


def decode_with_tensorflow(data: bytes, crop: Crop) -> Pixels:
    try:
        # Tensors, not Python values: those would take TensorFlow's slow way to call an operation.
        patch = tf.raw_ops.DecodeAndCropJpeg(
            contents=tf.constant(data),
            crop_window=tf.constant(np.array(crop[:4], np.int32)),
            channels=3,
            ratio=crop.ratio,
            dct_method="INTEGER_FAST",
        )
    except tf.errors.InvalidArgumentError:
        raise BadSample(BROKEN) from None
    return np.asarray(memoryview(patch))


@cache
def group_kernel() -> Fill | None:
    """Fills the slots of a group and tells what went wrong with each; None where that cannot be had."""
    return load(library())


class _Image(ctypes.Structure):
    """`struct Image` of jpeg.cc."""

    _fields_ = (
        ("data", ctypes.c_char_p),
        ("length", ctypes.c_int64),
        ("out", ctypes.c_void_p),
        *(
            (name, ctypes.c_int32)
            for name in ("top", "left", "height", "width", "ratio", "mirrored", "status")
        ),
    )


def load(path: Path, version: str = tf.__version__) -> Fill | None:
    """The kernel in this file; None if there is none, or it does not fit this TensorFlow."""
    if not version.startswith(_KNOWN_VERSIONS):
        return None
    try:
        function = ctypes.CDLL(str(path)).distxcept_jpegs
        # Loaded long ago: this only finds it again.
        decoder = getattr(ctypes.CDLL(str(Path(tf.__file__).parent / "libtensorflow_cc.so.2")), _DECODER)
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    function.restype = None
    decoder_address = ctypes.cast(decoder, ctypes.c_void_p)

    def fill(jobs: Sequence[Job]) -> list[Exception | None]:
        images = (_Image * len(jobs))(
            *(
                _Image(
                    job.data, len(job.data), job.out.__array_interface__["data"][0], *job.crop, job.mirrored
                )
                for job in jobs
            )
        )
        # ctypes lets other threads run meanwhile.
        function(decoder_address, images, len(jobs), jobs[0].out.shape[0])
        return [_error(image.status) for image in images]

    return fill if _same_bits(fill) else None


def _error(status: int) -> Exception | None:
    if status == _DONE:
        return None
    return BadSample(BROKEN) if status == _BROKEN else MemoryError("no memory to decode an image")


def _same_bits(fill: Fill) -> bool:
    """Ranks on different machines must agree, whichever way each of them takes."""
    rows, columns, channels = np.ogrid[:93, :125, :3]
    picture = ((rows * (3 + channels) + columns * 5) % 256).astype(np.uint8)
    data = tf.io.encode_jpeg(picture, quality=90).numpy()
    crops = [Crop(0, 0, 93, 125, 1), Crop(11, 22, 61, 83, 1), Crop(5, 3, 30, 41, 2), Crop(1, 2, 9, 12, 8)]
    slots, expected = np.empty((2, len(crops), 47, 47, 3), np.uint8)
    jobs = [Job(data, crop, bool(n % 2), slots[n]) for n, crop in enumerate(crops)]
    for job, out in zip(jobs, expected, strict=True):
        scale_with_tensorflow(decode_with_tensorflow(job.data, job.crop), out, job.mirrored)
    return not any(fill(jobs)) and np.array_equal(slots, expected)
