"""Each effect does what its name says, and what Pillow would do."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from distxcept.config.augment import Augment, Color, Erase
from distxcept.data import effects
from distxcept.data.keyed import hashes

RANDOM = np.random.default_rng(3)
LUMINANCE = np.array([0.299, 0.587, 0.114])


def image(size=40, seed=0):
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size] / size
    ramps = [x, y, (x + y) / 2]
    return np.stack([(ramp * 200 + random.integers(0, 40)).astype(np.uint8) for ramp in ramps], axis=-1)


def waves(count, size=64):
    y, x = np.mgrid[:size, :size] / size
    phases = RANDOM.uniform(0, 4, (count, 3, 3))
    sums = phases[..., 0, None, None] * x + phases[..., 1, None, None] * y + phases[..., 2, None, None]
    return np.moveaxis(127 + 110 * np.sin(sums), 1, -1).astype(np.uint8)


def noise(count, size=64):
    return RANDOM.integers(0, 256, (count, size, size, 3)).astype(np.uint8)


class TestAffine:
    def apply(self, images, draws, **settings):
        images = images if images.ndim == 4 else images[None]
        draws = np.atleast_2d(draws)
        draws = np.hstack([draws, np.full((len(draws), 6 - draws.shape[1]), 0.5)])
        found = tf.function(effects.affine)(images, Augment(**settings), tf.constant(draws)).numpy()
        assert found.dtype == np.uint8
        return found if len(found) > 1 else found[0]

    def test_nothing_is_the_identity(self):
        found = self.apply(image(), [0.9, 0.1, 0.7, 0.2, 0.3], rotate=0.0)
        assert np.array_equal(found, image())

    def test_a_quarter_turn(self):
        turned = self.apply(image(), [1.0], rotate=90.0)
        assert np.array_equal(turned, np.rot90(image()))
        assert np.array_equal(self.apply(image(), [0.0], rotate=90.0), np.rot90(image(), -1))
        assert np.array_equal(self.apply(image(), [0.0], rotate=180.0), np.rot90(image(), 2))

    def test_shift_moves_and_mirrors_at_the_border(self):
        moved = self.apply(image(), [0.5, 0.5, 0.5, 1.0, 0.5], shift=0.25)
        assert np.array_equal(moved[:, :30], image()[:, 10:])
        assert np.array_equal(moved[:, 30:], image()[:, 39:29:-1])
        moved = self.apply(image(), [0.5, 0.5, 0.5, 0.5, 0.0], shift=0.25)
        assert np.array_equal(moved[10:], image()[:30])
        assert np.array_equal(moved[:10], image()[9::-1])

    def test_zoom_magnifies_about_the_centre(self):
        zoomed = self.apply(image(), [0.5, 0.5, 0.0], zoom=(2.0, 2.0))
        assert np.abs(zoomed[::2, ::2].astype(int) - image()[10:30, 10:30]).max() <= 4
        smaller = self.apply(image(), [0.5, 0.5, 0.0], zoom=(0.5, 0.5))
        assert np.abs(smaller[10:30, 10:30].astype(int) - image()[::2, ::2]).max() <= 6

    def test_shear_leaves_the_middle_row(self):
        sheared = self.apply(image(), [0.5, 1.0], shear=45.0)
        assert np.abs(sheared[20, 5:35].astype(int) - image()[20, 5:35]).max() <= 4
        assert np.abs(sheared[5, 20].astype(int) - image()[5, 20]).max() > 30

    @pytest.mark.parametrize("zoom", [(0.1, 0.1), (1e-300, 1e-300), (1e300, 1e300)])
    def test_extreme_settings_still_give_an_image(self, zoom):
        draws = [0.8, 1.0, 0.0, 1.0, 0.0]
        found = self.apply(image(), draws, rotate=180.0, shift=1.0, shear=60.0, zoom=zoom)
        assert found.shape == (40, 40, 3)

    def test_as_pillow_does_it(self):
        size, draws = 64, RANDOM.random((40, 5))
        images = waves(40)
        settings = {"rotate": 30.0, "shift": 0.1, "shear": 20.0, "zoom": (0.7, 1.4)}
        found = self.apply(images, draws, **settings).astype(int)
        for picture, row, ours in zip(images, draws, found, strict=True):
            angle, shear = np.radians(30 * (2 * row[0] - 1)), np.tan(np.radians(20 * (2 * row[1] - 1)))
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            linear = turn @ [[1, shear], [0, 1]] / (0.7 * 2 ** row[2])
            offset = size + size / 2 + 0.1 * (2 * row[3:] - 1) * size - linear @ [size / 2, size / 2]
            padded = Image.fromarray(np.pad(picture, ((size, size), (size, size), (0, 0)), "symmetric"))
            data = (*linear[0], offset[0], *linear[1], offset[1])
            theirs = padded.transform((size, size), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
            assert np.abs(ours - np.asarray(theirs)).max() <= 1


class TestColor:
    def apply(self, images, draws, **settings):
        images = images if images.ndim == 4 else images[None]
        draws = tf.constant(np.atleast_2d(draws), tf.float64)
        found = tf.function(effects.color)(images, Color(**settings), draws).numpy()
        assert found.dtype == np.uint8
        return found.astype(float) if len(found) > 1 else found[0].astype(float)

    def test_no_range_changes_nothing(self):
        assert np.abs(self.apply(image(), [0.9, 0.1, 0.8, 0.3]) - image()).max() <= 1

    def test_each_does_its_part(self):
        plain = image().astype(float)
        assert np.allclose(self.apply(image(), [0.25, 0, 0, 0], brightness=1.0), plain * 0.5, atol=1)
        gray = self.apply(image(), [0, 0, 0.0, 0], saturation=1.0)
        assert np.ptp(gray, axis=-1).max() <= 1
        flat = self.apply(image(), [0, 0.0, 0, 0], contrast=1.0)
        assert flat.std() <= 1
        assert abs(flat.mean() - (plain @ LUMINANCE).mean()) < 1
        turned = self.apply(image(), [0, 0, 0, 1.0], hue=0.5)
        inside = (turned > 2).all(-1) & (turned < 253).all(-1)
        assert np.abs((turned - plain) @ LUMINANCE)[inside].max() < 3
        assert np.abs(turned - plain).max() > 50

    @pytest.mark.parametrize("settings", [(0.4, 0.4, 0.4, 0.1), (1.0, 1.0, 1.0, 0.5)])
    def test_as_pillow_does_it(self, settings):
        draws = RANDOM.random((40, 4))
        images = np.concatenate([waves(20), noise(20)])
        found = self.apply(
            images, draws, **dict(zip(("brightness", "contrast", "saturation", "hue"), settings, strict=True))
        )
        to_yiq = np.array([LUMINANCE, [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
        for picture, row, ours in zip(images, draws, found, strict=True):
            brightness, contrast, saturation = 1 + np.array(settings[:3]) * (2 * row[:3] - 1)
            hue = 2 * np.pi * settings[3] * (2 * row[3] - 1)
            turn = np.array([[1, 0, 0], [0, np.cos(hue), -np.sin(hue)], [0, np.sin(hue), np.cos(hue)]])
            mix = saturation * np.eye(3) + (1 - saturation) * np.tile(LUMINANCE, (3, 1))
            matrix = np.linalg.inv(to_yiq) @ turn @ to_yiq @ mix * brightness * contrast
            mean = np.asarray(Image.fromarray(picture).convert("L")).mean()
            offset = np.full((3, 1), (1 - contrast) * brightness * mean)
            theirs = Image.fromarray(picture).convert("RGB", tuple(np.hstack([matrix, offset]).ravel()))
            assert np.abs(ours - np.asarray(theirs)).max() <= 1

    def test_all_sums_are_exact(self):
        """float32 holds 2^24 steps: with the largest factors, and whatever the hue, no sum needs more."""
        gray = np.tile(LUMINANCE, (3, 1))
        largest = 0.0
        for angle in np.linspace(0, 2 * np.pi, 500):
            hue = (
                effects._HUE_CONSTANT
                + np.cos(angle) * effects._HUE_COSINE
                + np.sin(angle) * effects._HUE_SINE
            )
            for saturation in (0, 2):
                matrix = (saturation * hue + (1 - saturation) * gray) * 2 * 2
                largest = max(largest, np.abs(matrix).sum(axis=1).max())
        assert (largest + 2) * 255 + 1 < 2**24 * effects._COLOR_STEP


class TestErase:
    def apply(self, images, draws, keys, **settings):
        keys = tf.constant(keys, tf.uint64)
        return tf.function(effects.erase)(images, Erase(**settings), tf.constant(draws), keys).numpy()

    def test_replaces_a_rectangle_as_often_as_asked(self):
        before = np.tile(image(), (400, 1, 1, 1))
        after = self.apply(before, RANDOM.random((400, 6)), range(400), probability=0.3, area=(0.1, 0.1))
        changed, kinds = 0, set()
        for one, other in zip(before, after, strict=True):
            touched = (one != other).any(axis=-1)
            if touched.any():
                changed += 1
                rows, columns = np.flatnonzero(touched.any(1)), np.flatnonzero(touched.any(0))
                height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
                kinds.add((height, width))
                assert 0.05 < height * width / touched.size < 0.12
        assert 90 < changed < 150
        assert len(kinds) > 10

    def test_the_rectangle_and_its_noise(self):
        draws = np.array([[0.0, 0.5, 0.3, 0.2, 0.7, 0.0]])
        found = self.apply(np.zeros((1, 40, 40, 3), np.uint8), draws, [77], probability=1.0)
        area = 1600 * (0.02 + 0.31 * 0.5)
        ratio = np.exp(np.log(0.3) + (np.log(1 / 0.3) - np.log(0.3)) * 0.3)
        height, width = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        top, left = int((41 - height) * 0.2), int((41 - width) * 0.7)
        expected = np.zeros((40, 40, 3), np.uint8)
        count = height * width * 3
        noise = hashes(77, np.arange(-(-count // 8))).astype("<u8").view(np.uint8)[:count]
        expected[top : top + height, left : left + width] = noise.reshape(height, width, 3)
        assert np.array_equal(found[0], expected)

    def test_the_whole_and_nothing(self):
        draws = RANDOM.random((5, 6))
        images = waves(5, 16)
        assert np.array_equal(self.apply(images, draws, range(5), probability=0.0), images)
        whole = self.apply(images, np.full((5, 6), 0.5), range(5), probability=1.0, area=(1.0, 1.0))
        assert ((whole != images).any(axis=-1).mean(axis=(1, 2)) > 0.97).all()
        assert len({one.tobytes() for one in whole}) == 5
