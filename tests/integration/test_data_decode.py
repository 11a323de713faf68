"""The decoder on every odd file: rightly decoded against Pillow, or refused with the reason."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from distxcept.data.augment import PLAIN, View
from distxcept.data.decode import decode_whole, render
from distxcept.data.reader import Reader
from distxcept.data.sources.base import BadSample, Sample
from distxcept.data.window import Window, centre_square

sys.path.insert(0, str(Path(__file__).parent))
import odd_files

LIMIT = 200_000_000
GOOD, BAD = odd_files.good_files(), odd_files.bad_files()


def rendered(content, view=PLAIN, size=71):
    out = np.full((size, size, 3), 77, np.uint8)
    render(Sample(encoded=content), view, out, max_pixels=LIMIT)
    return out


def expected(image, window, size=71, flip=False):
    """Pillow's plain bilinear of the same window, no antialiasing."""
    box = (window.left, window.top, window.left + window.width, window.top + window.height)
    data = (window.width / size, 0, box[0], 0, window.height / size, box[1])
    scaled = image.transform((size, size), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
    return np.asarray(scaled)[:, ::-1] if flip else np.asarray(scaled)


@pytest.mark.parametrize("name", GOOD)
def test_decodes_rightly(name):
    content, image, allowed = GOOD[name]
    difference = np.abs(
        rendered(content).astype(int) - expected(image, centre_square(image.width, image.height))
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
        render(Sample(encoded=content), PLAIN, np.empty((71, 71, 3), np.uint8), max_pixels=100_000_000)
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
    assert render(Sample(pixels=pixels), PLAIN, out, max_pixels=LIMIT) == 71 * 71
    assert np.array_equal(out, pixels)
    render(Sample(pixels=pixels), View(centre_square, flip=True), out, max_pixels=LIMIT)
    assert np.array_equal(out, pixels[:, ::-1])


def test_the_pixel_limit_is_the_callers():
    content = GOOD["plain.jpg"][0]
    with pytest.raises(BadSample, match=r"more than data\.max_pixels = 100"):
        render(Sample(encoded=content), PLAIN, np.empty((71, 71, 3), np.uint8), max_pixels=100)


class Listed:
    """As much of a source as a reader asks for."""

    class_names = ("a",)

    def __init__(self, contents):
        self.contents, self.labels = contents, np.zeros(len(contents), np.int32)

    def read(self, index):
        return Sample(encoded=self.contents[index])


def test_a_broken_sample_harms_no_other():
    contents = [content for content, _, _ in GOOD.values()] * 2
    contents[5:5] = [BAD["truncated.jpg"][0], BAD["bomb.png"][0]]
    plain = GOOD["plain.jpg"][0]
    # Without its quantisation tables it passes the header check and fails in the decoder.
    contents[11:11] = [plain.replace(b"\xff\xdb", b"\xff\xfe")]
    views = [
        View(lambda w, h, k=k: Window(k % 7, k % 5, 60, 70), flip=k % 2 == 0) for k in range(len(contents))
    ]
    outs = [np.zeros((71, 71, 3), np.uint8) for _ in contents]
    results = Reader(source=Listed(contents), seed=0, augment=None).fill(range(len(contents)), views, outs)
    failed = [k for k, result in enumerate(results) if isinstance(result, Exception)]
    assert failed == [5, 6, 11]
    for k, content in enumerate(contents):
        if k not in failed:
            assert results[k].stored_pixels == 120 * 90
            assert np.array_equal(outs[k], rendered(content, views[k]))
