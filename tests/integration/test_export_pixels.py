"""The graph that travels with a SavedModel sees the same pixels as validation does."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from distxcept.config.schema import Evaluate
from distxcept.data.decode import View, render
from distxcept.data.sources.base import Sample
from distxcept.export.pixels_graph import exif_orientation, square_of

SIZE = 64


def traced(evaluate: Evaluate):
    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def of(data: tf.Tensor) -> tf.Tensor:
        return square_of(data, SIZE, evaluate)

    return of


@pytest.fixture(scope="module")
def graph():
    return traced(Evaluate())


def picture(width: int, height: int, form: str = "JPEG", **options) -> bytes:
    """Smooth, with a slope in each channel that tells every orientation from the others."""
    rows, columns = np.mgrid[0:height, 0:width]
    planes = [255 * rows / height, 255 * columns / width, 127 + 127 * np.sin(columns / 9 + rows / 23)]
    file = io.BytesIO()
    Image.fromarray(np.stack(planes, axis=2).astype(np.uint8)).save(file, form, **options)
    return file.getvalue()


def oriented(orientation: int, **where) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010F] = "a maker whose name is long enough to stand elsewhere"
    return picture(203, 131, exif=exif, **where)


def trained_on(data: bytes, evaluate: Evaluate = Evaluate()) -> np.ndarray:  # noqa: B008 - it is frozen
    out = np.zeros([SIZE, SIZE, 3], np.uint8)
    render(Sample(encoded=data), View.of_evaluation(evaluate), out, max_pixels=10**9)
    return out


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_gives_the_same_bits(graph, orientation):
    data = oriented(orientation)
    assert exif_orientation(tf.constant(data)).numpy() == orientation
    assert np.array_equal(graph(tf.constant(data)).numpy(), trained_on(data))


@pytest.mark.parametrize(
    ("width", "height"),
    [(64, 64), (30, 47), (65, 300), (128, 128), (257, 511), (1023, 530), (1100, 1400), (2300, 1600)],
    ids=str,
)
def test_jpeg_of_any_size_gives_the_same_bits(graph, width, height):
    """Around the scales of the decoder, and large enough for blocks to be averaged after it."""
    data = picture(width, height, quality=90)
    assert np.array_equal(graph(tf.constant(data)).numpy(), trained_on(data))


@pytest.mark.parametrize(
    "evaluate",
    [Evaluate(crop=0.875), Evaluate(crop=0.8975, interpolation="bicubic"), Evaluate(interpolation="bicubic")],
    ids=str,
)
def test_the_square_of_the_config(evaluate):
    graph = traced(evaluate)
    for data in (oriented(6), picture(257, 511), picture(1100, 1400), picture(333, 200, "PNG")):
        assert np.array_equal(graph(tf.constant(data)).numpy(), trained_on(data, evaluate))
    assert not np.array_equal(trained_on(data, evaluate), trained_on(data))


@pytest.mark.parametrize("form", ["PNG", "BMP"])
def test_other_formats(graph, form):
    data = picture(333, 200, form)
    assert np.array_equal(graph(tf.constant(data)).numpy(), trained_on(data))


def test_damaged_exif_is_passed_over():
    data = bytearray(oriented(6))
    at = data.index(b"Exif\0\0") + 6
    for length in (0, 2, 5, 9, 12):
        damaged = bytes(data[: at + length]) + b"\xff" * (60 - length)
        assert exif_orientation(tf.constant(damaged)).numpy() == 1
    assert exif_orientation(tf.constant(b"\xff\xd8")).numpy() == 1
