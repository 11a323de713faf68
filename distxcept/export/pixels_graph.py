"""From the bytes of an image file to the square that the model sees, as TensorFlow operations alone.

The same operations in the same order as data/decode.py takes for validation, so a JPEG gives the same pixels here as
there: upright by its EXIF orientation, the square of data.evaluate, decoded at the smallest sufficient scale, scaled.
PNG, GIF and BMP are taken as well.
"""

import tensorflow as tf

from distxcept.config.schema import Evaluate
from distxcept.data.augment import centre_windows

_HEAD_BYTES = 1 << 17
"""EXIF stands in one of the first segments, and a segment has at most 64 KiB."""
_RATIOS = (1, 2, 4, 8)
# For the EXIF orientations 0 to 8: transpose, then flip rows, then flip columns, from stored to upright pixels.
_TRANSPOSE = [False] * 5 + [True] * 4
_FLIP_ROWS = [False, False, False, True, True, False, False, True, True]
_FLIP_COLUMNS = [False, False, True, True, False, False, True, True, False]


def squares_of(files: tf.Tensor, size: int, evaluate: Evaluate) -> tf.Tensor:
    """Traced. uint8 [n, size, size, 3] of encoded images [n]."""
    spec = tf.TensorSpec([size, size, 3], tf.uint8)
    return tf.map_fn(lambda data: square_of(data, size, evaluate), files, fn_output_signature=spec)


def square_of(data: tf.Tensor, size: int, evaluate: Evaluate) -> tf.Tensor:
    """Traced. uint8 [size, size, 3] of one encoded image."""
    is_jpeg = tf.strings.substr(data, 0, 2) == b"\xff\xd8"
    patch = tf.cond(
        is_jpeg, lambda: _jpeg_patch(data, size, evaluate.crop), lambda: _other_patch(data, evaluate.crop)
    )
    if evaluate.interpolation == "bicubic":
        smooth = tf.image.resize(patch, [size, size], "bicubic", antialias=True)
        return tf.ensure_shape(tf.cast(tf.clip_by_value(tf.round(smooth), 0, 255), tf.uint8), [size, size, 3])
    patch = _reduce(patch, tf.minimum(tf.shape(patch)[0], tf.shape(patch)[1]) // size)
    # Half a grey level more goes through bilinear scaling unchanged, and makes cutting off the fraction a rounding.
    source = tf.cast(patch, tf.float32)[None] + 0.5
    scaled = tf.raw_ops.ResizeBilinear(images=source, size=[size, size], half_pixel_centers=True)
    return tf.ensure_shape(tf.cast(scaled[0], tf.uint8), [size, size, 3])


def _other_patch(data: tf.Tensor, crop: float) -> tf.Tensor:
    pixels = tf.io.decode_image(data, channels=3, expand_animations=False)
    height, width = tf.shape(pixels)[0], tf.shape(pixels)[1]
    top, left, side, _ = tf.unstack(centre_windows(tf.stack([height, width])[None], crop)[0])
    return pixels[top : top + side, left : left + side]


def _jpeg_patch(data: tf.Tensor, size: int, crop: float) -> tf.Tensor:
    orientation = exif_orientation(data)
    transpose = tf.gather(_TRANSPOSE, orientation)
    flip_rows, flip_columns = tf.gather(_FLIP_ROWS, orientation), tf.gather(_FLIP_COLUMNS, orientation)
    stored = tf.io.extract_jpeg_shape(data)
    height = tf.where(transpose, stored[1], stored[0])
    width = tf.where(transpose, stored[0], stored[1])
    top, left, side, _ = tf.unstack(centre_windows(tf.stack([height, width])[None], crop)[0])
    top = tf.where(flip_rows, height - top - side, top)
    left = tf.where(flip_columns, width - left - side, left)
    number = tf.reduce_sum(tf.cast(side >= size * tf.constant(_RATIOS[1:]), tf.int32))
    ratio = tf.gather(_RATIOS, number)
    bottom, right = -(-(top + side) // ratio), -(-(left + side) // ratio)
    top, left = top // ratio, left // ratio
    upright = tf.stack([top, left, bottom - top, right - left])
    window = tf.where(transpose, tf.gather(upright, [1, 0, 3, 2]), upright)

    def decode(ratio: int) -> tf.Tensor:
        return tf.image.decode_and_crop_jpeg(data, window, channels=3, ratio=ratio, dct_method="INTEGER_FAST")

    branches = [lambda ratio=ratio: decode(ratio) for ratio in _RATIOS]
    patch = tf.switch_case(number, branches)
    patch = tf.cond(transpose, lambda: tf.transpose(patch, [1, 0, 2]), lambda: patch)
    patch = tf.cond(flip_rows, lambda: tf.reverse(patch, [0]), lambda: patch)
    return tf.cond(flip_columns, lambda: tf.reverse(patch, [1]), lambda: patch)


def _reduce(patch: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Averages over blocks of factor × factor pixels, smaller ones at the lower and right edge; below 2 nothing."""

    def reduced() -> tf.Tensor:
        sums = _block_sums(tf.cast(patch, tf.int64), factor)
        counts = _block_sums(tf.ones_like(patch[..., :1], tf.int64), factor)
        # Pillow divides so, by a factor with 24 bits that is cut off: not always the nearest number.
        inverse = tf.cast(2.0**24 / tf.cast(counts, tf.float32), tf.int64)
        return tf.cast((sums + counts // 2) * inverse // 2**24, tf.uint8)

    return tf.cond(factor >= 2, reduced, lambda: patch)


def _block_sums(values: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    shape = tf.shape(values)
    rows, columns = -(-shape[0] // factor), -(-shape[1] // factor)
    edges = [[0, rows * factor - shape[0]], [0, columns * factor - shape[1]], [0, 0]]
    blocks = tf.reshape(tf.pad(values, edges), [rows, factor, columns, factor, shape[2]])
    return tf.reduce_sum(blocks, axis=[1, 3])


def exif_orientation(data: tf.Tensor) -> tf.Tensor:
    """Traced. 1 to 8; 1 if the file tells none, or what it tells is damaged."""
    head = tf.cast(tf.io.decode_raw(tf.strings.substr(data, 0, _HEAD_BYTES), tf.uint8), tf.int32)
    count = tf.shape(head)[0]

    def byte(at: tf.Tensor) -> tf.Tensor:
        """Zero where there is none."""
        inside = tf.logical_and(at >= 0, at < count)
        return tf.where(inside, tf.gather(head, tf.clip_by_value(at, 0, count - 1)), 0)

    tiff = _tiff_start(byte, count)
    little = byte(tiff) == ord("I")

    def word(at: tf.Tensor) -> tf.Tensor:
        first, second = byte(at), byte(at + 1)
        return tf.where(little, first + 256 * second, 256 * first + second)

    start = tiff + tf.where(little, word(tiff + 4), word(tiff + 6))
    entries = start + 2 + 12 * tf.range(word(start))
    wanted = tf.logical_and(word(entries) == 0x0112, word(entries + 2) == 3)
    value = tf.reduce_max(tf.where(wanted, word(entries + 8), 0)[:1000], axis=0)
    valid = tf.logical_and(tiff > 0, tf.logical_and(value >= 1, value <= 8))
    return tf.where(valid, value, 1)


def _tiff_start(byte, count: tf.Tensor) -> tf.Tensor:
    """Where the EXIF block of a JPEG begins; 0 if it has none. Walks from segment to segment."""
    exif = tf.constant(list(b"Exif\0\0"))

    def going_on(at: tf.Tensor, found: tf.Tensor) -> tf.Tensor:
        marker = byte(at + 1)
        frame = tf.logical_and(marker >= 0xC0, marker < 0xD0)
        frame = tf.logical_and(frame, tf.reduce_all(marker != tf.constant([0xC4, 0xC8, 0xCC])))
        usual = tf.logical_and(byte(at) == 0xFF, tf.logical_and(marker != 0xDA, tf.logical_not(frame)))
        return tf.logical_and(tf.logical_and(found == 0, at + 4 < count), usual)

    def step(at: tf.Tensor, found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        is_exif = tf.logical_and(byte(at + 1) == 0xE1, tf.reduce_all(byte(at + 4 + tf.range(6)) == exif))
        padded = byte(at + 1) == 0xFF
        length = tf.where(padded, 1, tf.maximum(2, 2 + 256 * byte(at + 2) + byte(at + 3)))
        return at + length, tf.where(is_exif, at + 10, found)

    _, found = tf.while_loop(going_on, step, (tf.constant(2), tf.constant(0)))
    return found
