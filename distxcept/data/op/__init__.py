"""The image operations of images.cc: compiled for the installed TensorFlow, loaded once, used only where their bits are
those of plain.py. DISTXCEPT_OP=off does without them."""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from distxcept.data.op import plain

VARIABLE = "DISTXCEPT_OP"
_lock = threading.Lock()
_loaded: list[Any] = []
"""The module or None, once it is known."""


@tf.autograph.experimental.do_not_convert
def library() -> Any | None:
    """Traced or eager. The module with the operations, built if need be; None where they cannot be had, which is told
    on stderr."""
    if os.environ.get(VARIABLE) == "off":
        return None
    from distxcept.data.op.build import CannotBuildError, build  # here, because build.py is a program too

    with _lock:
        if not _loaded:
            try:
                _loaded.append(load(build()))
            except CannotBuildError as error:
                print(f"distxcept: {error}; images are read slower", file=sys.stderr)
                _loaded.append(None)
        return _loaded[0]


def load(path: Path) -> Any:
    """The operations in this file; raises `CannotBuildError` if they do not work here as they must."""
    from distxcept.data.op.build import CannotBuildError

    try:
        module = tf.load_op_library(str(path))
    except (tf.errors.OpError, OSError, RuntimeError) as error:
        raise CannotBuildError(f"{path} does not load: {str(error).splitlines()[0]}") from None
    with tf.init_scope(), tf.device("/CPU:0"):
        if not same_bits(module):
            raise CannotBuildError(f"{path} gives other pixels than TensorFlow on this machine")
    return module


def same_bits(module: Any) -> bool:
    """Eager. Whether some images come out as from `plain`: ranks on different machines must agree."""
    rows, columns, channels = np.ogrid[:203, :175, :3]
    picture = ((rows * (3 + channels) + columns * 5) % 256).astype(np.uint8)
    jpeg = tf.io.encode_jpeg(picture, quality=90).numpy()
    turned = jpeg[:2] + _exif(6) + jpeg[2:]
    raw = plain.RAW_MAGIC + np.array([203, 175], "<i4").tobytes() + picture.tobytes()
    windows = [[0, 0, 175, 174], [11, 22, 61, 83], [5, 3, 97, 101], [1, 2, 20, 17], [150, 0, 30, 30]]
    for content, is_raw in ((jpeg, False), (turned, False), (raw, True)):
        contents = tf.constant([content] * len(windows))
        arguments = (contents, tf.constant(windows), tf.constant([False, True, False, True, False]))
        how: Any = {"raw": is_raw, "max_pixels": 10**6}
        pairs = [
            *zip(
                module.distxcept_inspect(contents=contents, **how),
                plain.inspect_all(contents, **how),
                strict=True,
            )
        ]
        for size in (20, 47):
            found = module.distxcept_fill(*arguments, size=size, **how)
            expected = plain.fill(*arguments, size=size, interpolation="bilinear", **how)
            pairs += zip(found, expected, strict=True)
        if not all(np.array_equal(one, other) for one, other in pairs):
            return False
    return True


def _exif(orientation: int) -> bytes:
    """A JPEG segment that gives nothing but the orientation."""
    entry = np.array([0x0112, 3, 1, 0, orientation, 0, 0, 0], "<u2").tobytes()
    tiff = b"II*\0" + np.array([8], "<u4").tobytes() + np.array([1], "<u2").tobytes() + entry
    return b"\xff\xe1" + (len(tiff) + 8).to_bytes(2, "big") + b"Exif\0\0" + tiff
