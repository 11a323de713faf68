"""Views and effects: keyed by sample alone, to the last bit, and the windows of the rules."""

from functools import cache
from math import exp, log, sqrt

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from distxcept.config.augment import Augment, Color, Crop, Erase, RandAugment
from distxcept.data import augment as augment_module
from distxcept.data.augment import centre_windows, change, draw
from distxcept.data.keyed import hashes, key, uniforms
from distxcept.data.window import Window, centre_window

INDICES = np.arange(2000)
SIZE = 37
EFFECTS = {
    "rotate": 20,
    "shift": 0.1,
    "shear": 10,
    "zoom": (0.8, 1.25),
    "color": Color(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
    "erase": Erase(probability=0.5),
}
POLICIES = {
    "randaugment": {"randaugment": RandAugment(operations=2, magnitude=7)},
    "autoaugment": {"autoaugment": True},
    "trivialaugment": {"trivialaugment": True},
}
EVERYTHING = {
    name: Augment(crop=Crop(scale=(0.08, 1.0)), **EFFECTS, **policy) for name, policy in POLICIES.items()
}


def pictures(indices):
    """Noise on a ramp, so that any change shows; one for each index."""
    ramp = np.linspace(0, 150, SIZE)[:, None, None]
    noise = [np.random.default_rng(abs(int(i))).integers(0, 100, (SIZE, SIZE, 3)) for i in indices]
    return (ramp + np.array(noise)).astype(np.uint8)


def drawn(augment, indices, sizes=(375, 500), seed=1, epoch=2):
    sizes = np.broadcast_to(np.array(sizes, np.int32), (len(indices), 2))

    @tf.function
    def traced(epoch, indices):
        return draw(augment, tf.constant(sizes), seed=seed, epoch=epoch, indices=indices)

    windows, flips = traced(tf.constant(epoch, tf.int64), tf.constant(indices, tf.int64))
    assert windows.dtype == tf.int32
    assert flips.dtype == tf.bool
    return windows.numpy(), flips.numpy()


@cache
def changing(augment, seed, count):
    """A graph for batches of this many images, made once."""

    def traced(images, epoch, indices):
        return change(augment, images, seed=seed, epoch=epoch, indices=indices)

    images = tf.TensorSpec([count, SIZE, SIZE, 3], tf.uint8)
    return tf.function(traced, [images, tf.TensorSpec([], tf.int64), tf.TensorSpec([count], tf.int64)])


def changed(augment, indices, images=None, seed=1, epoch=2):
    images = pictures(indices) if images is None else images
    function = changing(augment, seed, len(indices))
    return function(images, tf.constant(epoch, tf.int64), tf.constant(indices, tf.int64)).numpy()


def in_batches_of(count, augment, indices):
    parts = [indices[start : start + count] for start in range(0, len(indices), count)]
    return np.concatenate([changed(augment, part) for part in parts])


class TestKeyedBySample:
    @pytest.mark.parametrize("name", EVERYTHING)
    def test_the_batch_and_the_place_in_it_do_not_matter(self, name):
        augment = EVERYTHING[name]
        indices = np.arange(24)
        together = changed(augment, indices)
        assert together.shape == (24, SIZE, SIZE, 3)
        assert together.dtype == np.uint8
        backwards = changed(augment, indices[::-1])[::-1]
        assert np.array_equal(backwards, together)
        for count in (1, 6):
            assert np.array_equal(in_batches_of(count, augment, indices), together)
        assert len({image.tobytes() for image in together}) == 24
        assert not np.array_equal(changed(augment, indices, seed=2), together)
        assert not np.array_equal(changed(augment, indices, epoch=3), together)

    @pytest.mark.parametrize("name", EVERYTHING)
    def test_threads_do_not_matter(self, name):
        augment = EVERYTHING[name]
        indices = np.arange(24).reshape(6, 4)
        images = pictures(indices.ravel()).reshape(6, 4, SIZE, SIZE, 3)

        def work(part, of_part):
            return change(augment, of_part, seed=1, epoch=tf.constant(2, tf.int64), indices=part)

        dataset = tf.data.Dataset.from_tensor_slices((indices, images)).map(work, num_parallel_calls=4)
        assert np.array_equal(np.concatenate(list(dataset.as_numpy_iterator())), changed(augment, range(24)))

    def test_windows_and_flips_alike(self):
        augment = EVERYTHING["randaugment"]
        sizes = np.random.default_rng(0).integers(1, 900, (50, 2))
        windows, flips = drawn(augment, INDICES[:50], sizes)
        back_windows, back_flips = drawn(augment, INDICES[:50][::-1], sizes[::-1])
        assert np.array_equal(back_windows[::-1], windows)
        assert np.array_equal(back_flips[::-1], flips)
        for k in range(0, 50, 7):
            one_window, one_flip = drawn(augment, INDICES[k : k + 1], sizes[k : k + 1])
            assert np.array_equal(one_window[0], windows[k])
            assert one_flip[0] == flips[k]
        assert not np.array_equal(drawn(augment, INDICES[:50], sizes, epoch=3)[0], windows)
        assert not np.array_equal(drawn(augment, INDICES[:50], sizes, seed=2)[1], flips)

    @pytest.mark.parametrize("name", EVERYTHING)
    def test_padding_and_unusable_images_disturb_nobody(self, name):
        augment = EVERYTHING[name]
        indices = np.array([-1, 4, -1, 5])
        images = pictures(indices)
        images[[0, 2]] = 0
        assert np.array_equal(changed(augment, indices, images)[[1, 3]], changed(augment, [4, 5]))
        windows, _ = drawn(augment, indices, [[0, 0], [30, 40], [0, 0], [50, 60]])
        assert not windows[[0, 2]].any()
        assert np.array_equal(windows[[1, 3]], drawn(augment, [4, 5], [[30, 40], [50, 60]])[0])


class TestStreams:
    """Switching one on leaves the others as they were."""

    @pytest.mark.parametrize("name", POLICIES)
    def test_all_together_are_one_after_the_other(self, name):
        affine = {name: EFFECTS[name] for name in ("rotate", "shift", "shear", "zoom")}
        steps = [affine, POLICIES[name], {"color": EFFECTS["color"]}, {"erase": EFFECTS["erase"]}]
        indices = np.arange(12)
        images = pictures(indices)
        for step in steps:
            before, images = images, changed(Augment(**step), indices, images)
            assert not np.array_equal(images, before)
        assert np.array_equal(images, changed(EVERYTHING[name], indices))

    def test_windows_and_flips_are_as_without_effects(self):
        alone = drawn(Augment(crop=Crop()), INDICES[:50])
        among = drawn(Augment(crop=Crop(), **EFFECTS, autoaugment=True), INDICES[:50])
        assert np.array_equal(alone[0], among[0])
        assert np.array_equal(alone[1], among[1])
        assert np.array_equal(drawn(Augment(), INDICES[:50])[1], alone[1])
        assert not drawn(Augment(flip=False), INDICES[:50])[1].any()

    @pytest.mark.parametrize(
        ("settings", "stream"),
        [
            ({"crop": Crop()}, 2),
            ({"shift": 0.1}, 3),
            (POLICIES["randaugment"], 4),
            ({"color": EFFECTS["color"]}, 5),
            ({"erase": EFFECTS["erase"]}, 6),
            (POLICIES["autoaugment"], 7),
            (POLICIES["trivialaugment"], 8),
        ],
    )
    def test_each_draws_from_its_own(self, settings, stream, monkeypatch):
        used, original = [], augment_module._draws
        monkeypatch.setattr(augment_module, "_draws", lambda *all: used.append(all[0]) or original(*all))
        augment = Augment(flip=False, **settings)
        drawn(augment, INDICES[:2])
        changed(augment, INDICES[:2], seed=91)
        assert used == [stream]

    def test_flips_draw_as_they_always_did(self):
        found = drawn(Augment(), INDICES, seed=5, epoch=7)[1]
        assert np.array_equal(found, uniforms(key(1, 5, 7), INDICES, 1)[:, 0] < 0.5)


def test_each_sample_has_its_own_noise():
    black = np.zeros((5, SIZE, SIZE, 3), np.uint8)
    erased = changed(Augment(erase=Erase(probability=1)), np.arange(5), black)
    for index, image in enumerate(erased):
        rows, columns = np.nonzero(image.any(axis=-1))
        start = image[rows.min(), columns.min() :].ravel()[:8]
        assert start.tobytes() == int(hashes(key(6, 1, 2, index), np.arange(1))[0]).to_bytes(8, "little")


def test_none_changes_nothing():
    windows, flips = drawn(None, INDICES[:3])
    assert windows.tolist() == [[0, 62, 375, 375]] * 3
    assert not flips.any()
    assert np.array_equal(changed(None, INDICES[:3]), pictures(INDICES[:3]))
    assert np.array_equal(changed(Augment(), INDICES[:3]), pictures(INDICES[:3]))


def window_by_the_rules(crop, width, height, draws):
    (low_ratio, high_ratio), (low_scale, high_scale) = crop.ratio, crop.scale
    for attempt in range(10):
        area = width * height * (low_scale + (high_scale - low_scale) * draws[2 * attempt])
        ratio = exp(log(low_ratio) + (log(high_ratio) - log(low_ratio)) * draws[2 * attempt + 1])
        w, h = max(1, round(sqrt(area * ratio))), max(1, round(sqrt(area / ratio)))
        if w <= width and h <= height:
            return [int((height - h + 1) * draws[-2]), int((width - w + 1) * draws[-1]), h, w]
    ratio = min(max(width / height, low_ratio), high_ratio)
    w, h = min(width, max(1, round(height * ratio))), min(height, max(1, round(width / ratio)))
    return [(height - h) // 2, (width - w) // 2, h, w]


class TestWindows:
    @pytest.mark.parametrize(
        "crop", [Crop(), Crop(scale=(0.08, 1)), Crop(scale=(1, 1)), Crop(scale=(0.9, 1), ratio=(2, 3))]
    )
    def test_by_the_rules(self, crop):
        sizes = np.random.default_rng(1).integers(1, 3000, (len(INDICES), 2))
        sizes[::10] = [1, 1000]
        sizes[1::10] = [65_535, 65_535]
        sizes[2::10] = [1, 1]
        windows = drawn(Augment(crop=crop), INDICES, sizes, seed=3, epoch=4)[0]
        draws = uniforms(key(2, 3, 4), INDICES, 22).tolist()
        expected = [
            window_by_the_rules(crop, int(w), int(h), row) for (h, w), row in zip(sizes, draws, strict=True)
        ]
        assert windows.tolist() == expected

    @pytest.mark.parametrize("size", [(375, 500), (500, 375), (1, 1), (1000, 1), (2, 3000), (97, 97)])
    @pytest.mark.parametrize("scale", [(0.08, 1.0), (1.0, 1.0), (0.35, 0.5)])
    def test_stay_inside(self, size, scale):
        windows = drawn(Augment(crop=Crop(scale=scale)), INDICES[:300], size)[0]
        assert (windows[:, :2] >= 0).all()
        assert (windows[:, 2:] >= 1).all()
        assert (windows[:, :2] + windows[:, 2:] <= size).all()

    def test_have_the_area_ratio_and_spread_asked_for(self):
        windows, flips = drawn(Augment(crop=Crop(scale=(0.1, 0.6))), INDICES, (500, 500), seed=3)
        height, width = windows[:, 2], windows[:, 3]
        area, ratio = width * height / 500**2, width / height
        assert 0.098 < area.min() < 0.12
        assert 0.58 < area.max() < 0.602
        assert 0.33 < area.mean() < 0.37
        assert 0.74 < ratio.min() < 0.77
        assert 1.3 < ratio.max() < 1.345
        assert abs(np.log(ratio).mean()) < 0.01
        centres = windows[:, :2] + windows[:, 2:] / 2
        assert np.abs(centres.mean(axis=0) - 250).max() < 8
        assert 0.45 < flips.mean() < 0.55

    def test_extreme_settings_give_windows_too(self):
        crop = Crop(scale=(1e-300, 1.0), ratio=(1e-300, 1e300))
        windows = drawn(Augment(crop=crop), INDICES[:300], (40, 50))[0]
        assert (windows[:, 2:] >= 1).all()
        assert (windows[:, :2] + windows[:, 2:] <= (40, 50)).all()


class TestCentre:
    @given(st.integers(1, 70_000), st.integers(1, 70_000), st.floats(0.001, 1))
    def test_the_graph_and_python_agree(self, width, height, crop):
        window = centre_window(width, height, crop)
        expected = [window.top, window.left, window.height, window.width]
        assert centre_windows(tf.constant([[height, width]]), crop).numpy().tolist() == [expected]
        assert 1 <= window.height == window.width <= min(width, height)

    def test_the_whole_is_the_largest_square(self):
        assert centre_window(500, 375) == Window(0, 62, 375, 375)
        assert centre_windows(tf.constant([[375, 500]])).numpy().tolist() == [[0, 62, 375, 375]]

    def test_a_part_of_it(self):
        assert centre_window(500, 400, 0.875) == Window(25, 75, 350, 350)
        assert centre_window(500, 3, 0.01) == Window(1, 249, 1, 1)

    def test_of_nothing_is_nothing(self):
        assert not centre_windows(tf.zeros([2, 2], tf.int32), 0.9).numpy().any()


class TestOnePolicy:
    @pytest.mark.parametrize("first", POLICIES)
    @pytest.mark.parametrize("second", POLICIES)
    def test_two_contradict_each_other(self, first, second):
        if first == second:
            Augment(**POLICIES[first])
            return
        with pytest.raises(ValidationError, match=f"only one of .*{first}.*can be on") as caught:
            Augment(**POLICIES[first], **POLICIES[second])
        assert caught.value.errors()[0]["type"] == "contradiction"
