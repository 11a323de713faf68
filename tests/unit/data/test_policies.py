"""The operations are Pillow's, and each policy draws what its paper says."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

from distxcept.config.augment import RandAugment
from distxcept.data import operations, policies

SIZE = 64
RANDOM = np.random.default_rng(5)
NOISY = RANDOM.integers(20, 220, (SIZE, SIZE, 3)).astype(np.uint8)
Y, X = np.mgrid[:SIZE, :SIZE] / SIZE
SMOOTH = np.stack([127 + 120 * np.sin(2 * X + Y + phase) for phase in (0, 2, 4)], axis=-1).astype(np.uint8)
IMAGES = {
    "any value": RANDOM.integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8),
    "little contrast": RANDOM.integers(60, 90, (SIZE, SIZE, 3)).astype(np.uint8),
    "plain": np.full((SIZE, SIZE, 3), [7, 0, 255], np.uint8),
    "smooth": SMOOTH,
    "mostly dark": (RANDOM.random((SIZE, SIZE, 3)) ** 6 * 255).astype(np.uint8),
    "two values": np.where(RANDOM.random((SIZE, SIZE, 3)) < 0.05, 200, 10).astype(np.uint8),
}
FACTORS = [0.01, 0.1, 0.5, 1, 1.3, 1.9, 1.99]
BILINEAR = Image.Resampling.BILINEAR
GRAY = (128, 128, 128)


def ours(name, image, strength):
    operation = tf.function(getattr(operations, name), reduce_retracing=True)
    found = operation(tf.constant(image), tf.constant(strength, tf.float64)).numpy()
    assert found.dtype == np.uint8
    return found.astype(int)


def enhance(kind):
    return lambda image, factor: getattr(ImageEnhance, kind)(image).enhance(factor)


EXACT = {
    "identity": (lambda image, _: image, [0]),
    "autocontrast": (lambda image, _: ImageOps.autocontrast(image), [0]),
    "equalize": (lambda image, _: ImageOps.equalize(image), [0]),
    "invert": (lambda image, _: ImageOps.invert(image), [0]),
    "solarize": (ImageOps.solarize, [0, 1, 100, 255, 256]),
    "posterize": (ImageOps.posterize, [1, 2, 4, 7, 8]),
    "color": (enhance("Color"), FACTORS),
    "contrast": (enhance("Contrast"), FACTORS),
    "brightness": (enhance("Brightness"), FACTORS),
    "sharpness": (enhance("Sharpness"), FACTORS),
}


@pytest.mark.parametrize("name", EXACT)
def test_values_are_those_of_pillow(name):
    theirs, strengths = EXACT[name]
    for image in IMAGES.values():
        for strength in strengths:
            expected = np.asarray(theirs(Image.fromarray(image), strength))
            assert np.array_equal(ours(name, image, strength), expected), (name, strength)


def transform(*data):
    def theirs(image, strength):
        numbers = [entry(strength) if callable(entry) else entry for entry in data]
        return image.transform(image.size, Image.Transform.AFFINE, numbers, BILINEAR, fillcolor=GRAY)

    return theirs


WARPS = {
    "rotate": (lambda image, degrees: image.rotate(degrees, BILINEAR, fillcolor=GRAY), [13, -30, 100, 135]),
    "shear_x": (transform(1, float, 0, 0, 1, 0), [0.3, -0.3, 0.99]),
    "shear_y": (transform(1, 0, 0, float, 1, 0), [0.3, -0.3, 0.99]),
    "translate_x": (transform(1, 0, lambda part: part * SIZE, 0, 1, 0), [0.3, -0.3, 0.11]),
    "translate_y": (transform(1, 0, 0, 0, 1, lambda part: part * SIZE), [0.3, -0.3, 0.11]),
}


@pytest.mark.parametrize("name", WARPS)
@pytest.mark.parametrize("image", ["any value", "smooth"])
def test_moves_are_those_of_pillow(name, image):
    """But for a pixel along the border, which Pillow does not mix with the grey."""
    theirs, strengths = WARPS[name]
    for strength in strengths:
        expected = np.asarray(theirs(Image.fromarray(IMAGES[image]), strength)).astype(int)
        wrong = np.abs(ours(name, IMAGES[image], strength) - expected).max(axis=-1) > 1
        inside = np.asarray(theirs(Image.new("RGB", (SIZE, SIZE), (1, 1, 1)), strength))[..., 0] == 1
        assert not wrong[~inside & ~near(inside)].any()
        assert not wrong[inside & ~near(~inside) & ~border(SIZE)].any()
        assert wrong.mean() < 0.04


def near(mask):
    """What touches the mask, by one pixel."""
    padded = np.pad(mask, 1)
    return np.any(
        [padded[y : y + SIZE, x : x + SIZE] for y in range(3) for x in range(3)],
        axis=0,
    )


def border(size):
    mask = np.ones((size, size), bool)
    mask[1:-1, 1:-1] = False
    return mask


@pytest.mark.parametrize(("degrees", "turns"), [(0, 0), (90, 1), (180, 2), (-90, 3)])
def test_right_angles_lose_nothing(degrees, turns):
    assert np.array_equal(ours("rotate", NOISY, degrees), np.rot90(NOISY, turns))


@pytest.mark.parametrize("name", ["shear_x", "shear_y", "translate_x", "translate_y"])
def test_no_move_loses_nothing(name):
    assert np.array_equal(ours(name, NOISY, 0), NOISY)


@pytest.fixture
def choices(monkeypatch):
    """What a policy would do with many images: names and strengths of the operations."""
    names = np.array(list(policies._OPERATIONS))
    monkeypatch.setattr(
        policies, "_carry_out", lambda images, numbers, strengths: (names[numbers], strengths.numpy())
    )

    def drawn(policy, width, **settings):
        return policy(None, draws=tf.constant(np.random.default_rng(1).random((20_000, width))), **settings)

    return drawn


SIGNED = ["rotate", "shear_x", "shear_y", "translate_x", "translate_y"]
ENHANCE = ["color", "contrast", "brightness", "sharpness"]


class TestRandAugment:
    def test_all_operations_alike_and_of_the_same_magnitude(self, choices):
        names, strengths = choices(policies.randaugment, 6, setting=RandAugment(operations=3, magnitude=5))
        assert names.shape == (20_000, 3)
        for place in range(3):
            found, counts = np.unique(names[:, place], return_counts=True)
            assert set(found) == set(policies._OPERATIONS) - {"invert"}
            assert (np.abs(counts / 20_000 - 1 / 14) < 0.01).all()
        expected = {
            "rotate": {15, -15},
            "solarize": {128},
            "posterize": {6},
            **{name: {1.45, 0.55} for name in ENHANCE},
            **{name: {0.15, -0.15} for name in SIGNED[1:]},
        }
        for name, values in expected.items():
            assert set(np.round(strengths[names == name], 9)) == values
        assert abs((strengths[names == "rotate"] > 0).mean() - 0.5) < 0.03

    @pytest.mark.parametrize("magnitude", [0, 2.5, 10])
    def test_strengths_follow_the_magnitude(self, choices, magnitude):
        names, strengths = choices(
            policies.randaugment, 2, setting=RandAugment(operations=1, magnitude=magnitude)
        )
        assert set(strengths[names == "posterize"]) == {8 - round(4 * magnitude / 10)}
        assert set(strengths[names == "solarize"]) == {round(256 * (1 - magnitude / 10))}
        assert np.allclose(np.abs(strengths[names == "rotate"]), 3 * magnitude)

    def results(self, magnitude):
        rows = [((choice + 0.5) / 14, sign) for choice in range(14) for sign in (0.2, 0.8)]
        images = tf.constant(np.tile(NOISY, (len(rows), 1, 1, 1)))
        setting = RandAugment(operations=1, magnitude=magnitude)
        found = tf.function(policies.randaugment)(images, setting, tf.constant(rows, tf.float64)).numpy()
        return found.reshape(14, 2, SIZE, SIZE, 3)

    def test_magnitude_zero_of_continuous_operations_changes_nothing(self):
        keep = [np.array_equal(found[0], NOISY) for found in self.results(0)]
        # All but autocontrast and equalize, which know no strength; solarize at 256 inverts nothing.
        assert sum(keep) == 12

    def test_full_magnitude_changes_both_ways(self):
        results = self.results(10)
        assert sum(not np.array_equal(found[0], NOISY) for found in results) == 13
        assert sum(not np.array_equal(found[0], found[1]) for found in results) == 9

    def test_one_after_the_other(self):
        draws = tf.constant([[1.5 / 14, 0, 6.5 / 14, 0.9]], tf.float64)
        found = policies.randaugment(tf.constant(NOISY)[None], RandAugment(operations=2, magnitude=10), draws)
        expected = ours("color", ours("autocontrast", NOISY, 0).astype(np.uint8), 0.1)
        assert np.array_equal(found[0], expected)


class TestAutoAugment:
    def test_the_policy_of_the_paper(self, choices):
        assert len(policies._IMAGENET_POLICY) == 25
        for pair in policies._IMAGENET_POLICY:
            for name, probability, level in pair:
                assert name in policies._OPERATIONS
                assert 0 <= probability <= 1
                assert level in range(10)
        names, strengths = choices(policies.autoaugment, 5)
        assert names.shape == (20_000, 2)
        share = (names == "equalize").any(axis=1).mean()
        assert share == pytest.approx(self.share("equalize"), abs=0.02)
        assert (names == "posterize").any(axis=1).mean() == pytest.approx(self.share("posterize"), abs=0.02)
        assert set(np.round(strengths[names == "rotate"], 6)) == {
            sign * round(30 * level / 9, 6) for level in (3, 8, 9) for sign in (1, -1)
        }
        assert set(np.round(strengths[names == "color"], 6)) == {
            round(0.1 + 0.2 * level, 6) for level in (0, 2, 4, 8)
        }
        assert set(strengths[names == "solarize"]) == {
            round(256 - 256 * level / 9) for level in (3, 4, 5, 7, 8)
        }
        assert set(strengths[names == "posterize"]) == {4, 5, 6}

    def share(self, wanted):
        """Of images that get this operation at least once."""
        missing = [
            np.prod([1 - probability for name, probability, _ in pair if name == wanted])
            for pair in policies._IMAGENET_POLICY
        ]
        return 1 - np.mean(missing)

    def test_each_pair_with_its_probabilities(self, choices):
        draws = tf.constant([[10.5 / 25, 0.79, 0.39, 0.6, 0], [10.5 / 25, 0.81, 0.41, 0, 0]], tf.float64)
        names, strengths = policies.autoaugment(None, draws)
        assert names.tolist() == [["rotate", "color"], ["identity", "identity"]]
        assert np.allclose(strengths[0], [-30 * 8 / 9, 0.1])


class TestTrivialAugment:
    def test_one_operation_of_any_strength(self, choices):
        names, strengths = choices(policies.trivialaugment, 3)
        assert names.shape == (20_000, 1)
        found, counts = np.unique(names, return_counts=True)
        assert set(found) == set(policies._OPERATIONS) - {"invert"}
        assert (np.abs(counts / 20_000 - 1 / 14) < 0.01).all()
        levels = np.arange(31) / 30
        for name, largest in zip(SIGNED, [135, 0.99, 0.99, 1 / 7, 1 / 7], strict=True):
            self.assert_all(strengths[names == name], np.concatenate([levels, -levels]) * largest)
        for name in ENHANCE:
            self.assert_all(strengths[names == name], 1 + np.concatenate([levels, -levels]) * 0.99)
        self.assert_all(strengths[names == "posterize"], np.arange(2, 9))
        self.assert_all(strengths[names == "solarize"], np.round(256 * (1 - levels)))
        _, counts = np.unique(np.round(np.abs(strengths[names == "rotate"]), 6), return_counts=True)
        assert len(counts) == 31
        assert counts.min() > 20

    def assert_all(self, found, expected):
        """The same values occur."""
        assert np.allclose(np.unique(np.round(found, 6)), np.unique(np.round(expected, 6)), atol=2e-6)

    def test_on_images(self):
        images = np.stack([NOISY, SMOOTH])
        draws = tf.constant([[5.5 / 14, 0.999, 0], [0.5 / 14, 0.999, 0]], tf.float64)
        found = tf.function(policies.trivialaugment)(images, draws)
        assert np.array_equal(found[0], ours("posterize", NOISY, 2))
        assert np.array_equal(found[1], SMOOTH)
