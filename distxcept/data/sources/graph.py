"""What sources share inside a TensorFlow graph: their tables, and reading in Python where the graph cannot."""

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from PIL import Image

from distxcept.data.decode import decode_whole, encode_raw
from distxcept.data.retry import lacked_memory, read_with_retries, retry_without_memory
from distxcept.data.sources.base import MAX_PIXELS, Sample

if TYPE_CHECKING:
    from distxcept.data.sources.base import Source


def column(values: Any) -> tf.Tensor:
    """A table of a source, one for all graphs that use it.

    A constant and not a variable: where operations have to be deterministic, `tf.data` runs stages that read variables
    one by one.
    """
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.constant(values)


def with_tables(numbers: tf.data.Dataset, source: "Source") -> tf.data.Dataset:
    """Elements (number, tables of the source) where the source has tables, else the numbers alone."""
    tables = source.tables()
    return tf.data.Dataset.zip(numbers, tf.data.Dataset.from_tensors(tables).repeat()) if tables else numbers


def take(values: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Traced. Rows of a table; any row where an index is negative."""
    return tf.gather(values, tf.maximum(indices, 0))


def read_in_python(source: "Source", indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Traced. Contents and ok of samples by one call of Python, which reads one after the other.

    Errors that pass are waited out; whatever else happens to a sample makes its `ok` False. -1 is padding.
    """

    def read(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = [content_of(source, int(index)) for index in chosen]
        contents = np.empty(len(found), object)  # an array of bytes would drop zeros at their ends
        contents[:] = [b"" if content is None else content for content in found]
        return contents, np.array([content is not None for content in found], bool)

    contents, ok = tf.numpy_function(read, [indices], (tf.string, tf.bool), stateful=False)
    return tf.ensure_shape(contents, indices.shape), tf.ensure_shape(ok, indices.shape)


def content_of(source: "Source", index: int) -> bytes | None:
    """What goes through the graph for a sample; None if it cannot be used."""
    if index < 0 or source.labels[index] < 0:
        return None
    try:
        return retry_without_memory(
            lambda: _as_content(read_with_retries(lambda: source.read(index)), source.raw)
        )
    except Exception as error:  # whatever happens to a sample is its own matter
        if lacked_memory(error):
            raise MemoryError(str(error)) from None  # TensorFlow makes its own error of this one only
        return None


def _as_content(sample: Sample, raw: bool) -> bytes:
    """Encoded bytes or raw pixels, as the source has promised, whichever of the two the sample holds."""
    if raw:
        return encode_raw(decode_whole(sample, max_pixels=MAX_PIXELS))
    if sample.encoded is not None:
        return sample.encoded
    assert sample.pixels is not None
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(sample.pixels)).save(file, "png", compress_level=1)
    return file.getvalue()
