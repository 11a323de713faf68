"""The decoder on every odd file, alone and in batches: rightly decoded against Pillow, or refused with the reason."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps
from tensorflow.python.framework import op_def_registry

from distxcept.data import op
from distxcept.data.decode import View, decode_whole, encode_raw, fill, read_files, render, upright_sizes
from distxcept.data.sources.base import BadSample, Sample
from distxcept.data.window import Window, centre_window

sys.path.insert(0, str(Path(__file__).parent))
import odd_files

LIMIT = 200_000_000
GOOD, BAD = odd_files.good_files(), odd_files.bad_files()
SIZE = 71


@pytest.fixture(params=["compiled", "python"], autouse=True)
def way(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setenv(op.VARIABLE, "off")
    elif op.library() is None:
        pytest.skip("no C++ compiler: apt-get install g++")
    return request.param


def rendered(content, view=View(), size=SIZE):  # noqa: B008
    out = np.full((size, size, 3), 77, np.uint8)
    render(Sample(encoded=content), view, out, max_pixels=LIMIT)
    return out


def filled(contents, windows, flips, **options):
    """In a graph. Images and ok."""
    how = {"size": SIZE, "raw": False, "max_pixels": LIMIT, **options}
    tensors = tf.constant(contents), tf.constant(windows, tf.int32), tf.constant(flips)
    images, ok = tf.function(lambda *parts: fill(*parts, **how))(*tensors)
    assert images.shape == (len(contents), how["size"], how["size"], 3) and ok.shape == (len(contents),)
    return images.numpy(), ok.numpy()


def expected(image, window, size=SIZE, flip=False):
    """Pillow's plain bilinear of the same window, no antialiasing."""
    box = (window.left, window.top, window.left + window.width, window.top + window.height)
    data = (window.width / size, 0, box[0], 0, window.height / size, box[1])
    scaled = image.transform((size, size), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
    return np.asarray(scaled)[:, ::-1] if flip else np.asarray(scaled)


@pytest.mark.parametrize("name", GOOD)
def test_decodes_rightly(name):
    content, image, allowed = GOOD[name]
    difference = np.abs(
        rendered(content).astype(int) - expected(image, centre_window(image.width, image.height))
    )
    # The border is left out: Pillow's transform blends it with black.
    assert difference[2:-2, 2:-2].mean() <= allowed


@pytest.mark.parametrize("name", GOOD)
def test_windows_and_flips_hit_the_same_place(name):
    content, image, allowed = GOOD[name]
    window = Window(7, 22, 61, 75)
    got = rendered(content, View(lambda width, height: window, flip=True))
    difference = np.abs(got.astype(int) - expected(image, window, flip=True))
    assert difference[2:-2, 2:-2].mean() <= allowed + 0.5


@pytest.mark.parametrize("name", GOOD)
def test_whole_images(name):
    content, image, allowed = GOOD[name]
    pixels = decode_whole(Sample(encoded=content), max_pixels=LIMIT)
    assert np.abs(pixels.astype(int) - np.asarray(image)).mean() <= allowed


@pytest.mark.parametrize("name", BAD)
def test_refuses_with_the_reason(name):
    content, reason = BAD[name]
    with pytest.raises(BadSample) as caught:
        render(Sample(encoded=content), View(), np.empty((71, 71, 3), np.uint8), max_pixels=100_000_000)
    assert reason in str(caught.value)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("factor", [2.3, 4, 9, 20])
def test_smaller_jpeg_scales_show_the_same(orientation, factor):
    size = 32
    image = odd_files.picture(3, round(50 * factor), round(40 * factor))
    turn = [None, None, *(getattr(Image.Transpose, name) for name in odd_files._UNDO)][orientation]
    stored = image if turn is None else image.transpose(turn)
    content = odd_files.encode(stored, "JPEG", quality=95, exif=odd_files.exif(orientation))
    window = Window(round(2 * factor), round(5 * factor), round(35 * factor), round(36 * factor))
    got = rendered(content, View(lambda width, height: window), size)
    box = (window.left, window.top, window.left + window.width, window.top + window.height)
    wanted = np.asarray(image.resize((size, size), Image.Resampling.BOX, box=box))
    assert np.abs(got.astype(int) - wanted).mean() < 4


def test_arrays_of_the_right_size_come_through_untouched():
    pixels = np.asarray(odd_files.picture(1, 71, 71))
    out = np.empty((71, 71, 3), np.uint8)
    assert render(Sample(pixels=pixels), View(), out, max_pixels=LIMIT) == 71 * 71
    assert np.array_equal(out, pixels)
    render(Sample(pixels=pixels), View(flip=True), out, max_pixels=LIMIT)
    assert np.array_equal(out, pixels[:, ::-1])


def test_the_pixel_limit_is_the_callers():
    content = GOOD["plain.jpg"][0]
    with pytest.raises(BadSample, match=r"more than data\.max_pixels = 100"):
        render(Sample(encoded=content), View(), np.empty((71, 71, 3), np.uint8), max_pixels=100)


def test_every_file_in_one_batch_is_as_it_is_alone():
    """Raw pixels, JPEG and what goes through Pillow, broken ones between them; sizes too."""
    files = {
        **{name: content for name, (content, *_) in GOOD.items()},
        **{name: content for name, (content, _) in BAD.items()},
    }
    # Without its quantisation tables it passes the header check and fails in the decoder.
    files["no_tables.jpg"] = GOOD["plain.jpg"][0].replace(b"\xff\xdb", b"\xff\xfe")
    contents = list(files.values())
    windows = [(k % 7, k % 5, 60 + k % 4, 70 + k % 9) for k in range(len(files))]
    flips = [k % 2 == 0 for k in range(len(files))]
    images, ok = filled(contents, windows, flips, max_pixels=100_000_000)
    sizes = upright_sizes(tf.constant(contents), raw=False, max_pixels=100_000_000).numpy()
    for k, (name, content) in enumerate(files.items()):
        if name in GOOD:
            view = View(lambda width, height, k=k: Window(*windows[k]), flips[k])
            assert ok[k] and np.array_equal(images[k], rendered(content, view)), name
            assert tuple(sizes[k]) == (90, 120)
        else:
            assert not ok[k] and not images[k].any(), name
    refused = dict(zip(files, ~sizes.any(1), strict=True))
    assert refused["bomb.png"] and refused["truncated.jpg"] and not refused["truncated.png"]


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_raw_pixels_in_a_batch_are_as_alone(interpolation):
    random = np.random.default_rng(0)
    arrays = [
        random.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in ((71, 71), (90, 75), (400, 300))
    ]
    windows = [(0, 0, 71, 71), (3, 2, 71, 73), (10, 20, 380, 250)]
    contents = [*map(encode_raw, arrays), b"DXRW", b""]
    flips = [True, False, True, False, False]
    images, ok = filled(
        contents, [*windows, *[(0, 0, 1, 1)] * 2], flips, raw=True, interpolation=interpolation
    )
    assert ok.tolist() == [True, True, True, False, False] and not images[3:].any()
    for k, array in enumerate(arrays):
        view = View(lambda width, height, k=k: Window(*windows[k]), flips[k], interpolation)
        out = np.empty((SIZE, SIZE, 3), np.uint8)
        assert render(Sample(pixels=array), view, out, max_pixels=1) == array.shape[0] * array.shape[1]
        assert np.array_equal(images[k], out)
    if interpolation == "bilinear":
        assert np.array_equal(images[0], arrays[0][:, ::-1])


@pytest.mark.parametrize("size", [32, 47, 150, 299])
@pytest.mark.parametrize("shape", [(300, 200), (150, 150), (97, 640), (60, 80)])
def test_bicubic_is_that_of_pillow(shape, size):
    """Smaller and larger. Pillow cuts to bytes between columns and rows too, so nothing here overshoots."""
    random = np.random.default_rng(shape[0] + size)
    height, width = shape
    picture = np.asarray(odd_files.picture(size, width, height)) * 0.6 + random.normal(
        50, 10, (height, width, 3)
    )
    image = Image.fromarray(picture.clip(30, 225).astype(np.uint8))
    window = (height // 9, width // 7, height // 2, width // 2)
    png, raw = odd_files.encode(image, "PNG"), encode_raw(np.asarray(image))
    box = (window[1], window[0], window[1] + window[3], window[0] + window[2])
    wanted = np.asarray(image.crop(box).resize((size, size), Image.Resampling.BICUBIC)).astype(int)
    for content, is_raw in ((png, False), (raw, True)):
        images, ok = filled([content], [window], [False], size=size, raw=is_raw, interpolation="bicubic")
        assert ok.all()
        difference = np.abs(images[0] - wanted)
        assert difference.max() <= 2
        assert difference.mean() < 0.3


@pytest.mark.parametrize("factor", [1.3, 2.3, 4.5, 9])
def test_bicubic_of_jpeg_images(factor):
    """At the smaller scales of the decoder the window begins and ends at whole pixels of that scale."""
    size = 48
    image = odd_files.picture(5, round(80 * factor), round(60 * factor))
    content = odd_files.encode(image, "JPEG", quality=95, exif=odd_files.exif(6))
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB")
    window = (round(5 * factor), round(3 * factor), round(50 * factor), round(52 * factor))
    images, ok = filled([content], [window], [True], size=size, interpolation="bicubic")
    box = (window[1], window[0], window[1] + window[3], window[0] + window[2])
    wanted = np.asarray(upright.crop(box).resize((size, size), Image.Resampling.BICUBIC))[:, ::-1]
    assert ok.all()
    assert np.abs(images[0] - wanted.astype(int)).mean() < 2.5
    view = View(lambda width, height: Window(*window), True, "bicubic")
    assert np.array_equal(rendered(content, view, size), images[0])


def test_want_of_memory_is_an_error_of_the_operation(monkeypatch):
    """It says nothing about the sample."""

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr("distxcept.data.decode.decode_with_pillow", fail)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        filled([GOOD["gray.png"][0]], [(0, 0, 9, 9)], [False])


def test_python_is_called_for_no_ordinary_batch(monkeypatch, way):
    if way == "python":
        pytest.skip("without the operation Python decodes all")
    called = []
    monkeypatch.setattr(
        "distxcept.data.decode.decode_with_pillow", lambda *some: called.append(some) or 1 / 0
    )
    contents = [GOOD[name][0] for name in ("plain.jpg", "gray.jpg", "turned6.jpg")]
    _, ok = filled([*contents, BAD["truncated.jpg"][0]], [(0, 0, 50, 50)] * 4, [False] * 4)
    assert ok.tolist() == [True, True, True, False] and not called


def test_nothing_in_the_graph_has_state():
    """Where operations have to be deterministic, tf.data runs a stage with state one call at a time."""

    def stage(paths, windows, flips):
        contents, ok = read_files(paths)
        sizes = upright_sizes(contents, raw=False, max_pixels=LIMIT)
        how = {"size": SIZE, "max_pixels": LIMIT}
        several = [fill(contents, windows, flips, raw=raw, **how) for raw in (False, True)]
        return ok, sizes, several, fill(contents, windows, flips, raw=False, interpolation="bicubic", **how)

    specs = [tf.TensorSpec([4], tf.string), tf.TensorSpec([4, 4], tf.int32), tf.TensorSpec([4], tf.bool)]
    graph = tf.function(stage).get_concrete_function(*specs).graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    operations = {node.op for node in nodes}
    assert len(operations) > 10
    definitions = [op_def_registry.get(name) for name in operations]
    assert [one.name for one in definitions if one is not None and one.is_stateful] == []
