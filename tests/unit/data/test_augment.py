"""Views and effects: keyed by sample alone, within bounds, and doing what their names say."""

import numpy as np
import pytest

from distxcept.config.augment import Augment, Color, Crop, Erase, RandAugment
from distxcept.data import effects
from distxcept.data.augment import PLAIN, draw_views

INDICES = np.arange(2000)
EVERYTHING = Augment(
    crop=Crop(scale=(0.08, 1.0)),
    rotate=20,
    shift=0.1,
    shear=10,
    zoom=(0.8, 1.25),
    color=Color(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
    randaugment=RandAugment(operations=2, magnitude=7),
    erase=Erase(probability=0.5),
)


def image(size=40, seed=0):
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size] / size
    ramps = [x, y, (x + y) / 2]
    return np.stack([(ramp * 200 + random.integers(0, 40)).astype(np.uint8) for ramp in ramps], axis=-1)


def outcomes(augment, indices, seed=1, epoch=2):
    found = []
    for view in draw_views(augment, seed=seed, epoch=epoch, indices=np.asarray(indices)):
        pixels = image()
        for effect in view.effects:
            pixels = effect(pixels)
            assert pixels.shape == (40, 40, 3)
            assert pixels.dtype == np.uint8
        found.append((view.choose(500, 375), view.flip, pixels.tobytes()))
    return found


def test_a_view_depends_on_seed_epoch_and_sample_only():
    together = outcomes(EVERYTHING, range(20))
    alone = [outcomes(EVERYTHING, [k])[0] for k in range(20)]
    backwards = outcomes(EVERYTHING, range(19, -1, -1))[::-1]
    assert together == alone == backwards
    assert together != outcomes(EVERYTHING, range(20), seed=2)
    assert together != outcomes(EVERYTHING, range(20), epoch=3)
    assert len({outcome[2] for outcome in together}) == 20


def test_switching_one_on_leaves_the_others_alone():
    base = draw_views(Augment(crop=Crop()), seed=1, epoch=0, indices=INDICES[:50])
    more = draw_views(EVERYTHING.model_copy(update={"crop": Crop()}), seed=1, epoch=0, indices=INDICES[:50])
    assert [(v.choose(500, 375), v.flip) for v in base] == [(v.choose(500, 375), v.flip) for v in more]


def test_none_is_the_centre():
    assert draw_views(None, seed=1, epoch=0, indices=INDICES[:3]) == [PLAIN] * 3
    window = PLAIN.choose(500, 375)
    assert (window.top, window.left, window.height, window.width) == (0, 62, 375, 375)


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (1, 1), (1, 1000), (3000, 2), (97, 97)])
@pytest.mark.parametrize("scale", [(0.08, 1.0), (1.0, 1.0), (0.35, 0.5)])
def test_windows_stay_inside(size, scale):
    width, height = size
    for view in draw_views(Augment(crop=Crop(scale=scale)), seed=3, epoch=0, indices=INDICES[:300]):
        w = view.choose(width, height)
        assert 0 <= w.top <= w.top + w.height <= height
        assert 0 <= w.left <= w.left + w.width <= width
        assert w.height >= 1
        assert w.width >= 1


def test_windows_have_the_area_ratio_and_spread_asked_for():
    views = draw_views(Augment(crop=Crop(scale=(0.1, 0.6))), seed=3, epoch=0, indices=INDICES)
    windows = [view.choose(500, 500) for view in views]
    area = np.array([w.width * w.height / 500**2 for w in windows])
    ratio = np.array([w.width / w.height for w in windows])
    assert 0.098 < area.min() < 0.12
    assert 0.58 < area.max() < 0.602
    assert 0.33 < area.mean() < 0.37
    assert 0.74 < ratio.min() < 0.77
    assert 1.3 < ratio.max() < 1.345
    assert abs(np.log(ratio).mean()) < 0.01
    centres = np.array([(w.top + w.height / 2, w.left + w.width / 2) for w in windows])
    assert np.abs(centres.mean(axis=0) - 250).max() < 8
    assert 0.45 < np.mean([view.flip for view in views]) < 0.55


class TestAffine:
    def matrix(self, **settings):
        return lambda *draws: effects.affine_matrix(
            Augment(**settings), np.array([*draws, *[0.5] * (6 - len(draws))])
        )

    def test_nothing_is_the_identity(self):
        matrix = self.matrix()(0.9, 0.1, 0.7, 0.2, 0.3)
        assert np.allclose(matrix, [[1, 0, 0], [0, 1, 0]])
        assert np.array_equal(effects.apply_affine(image(), matrix), image())

    def test_a_quarter_turn(self):
        matrix = self.matrix(rotate=90.0)(1.0)
        turned = effects.apply_affine(image(), matrix)
        assert np.array_equal(turned, np.rot90(image())) or np.array_equal(turned, np.rot90(image(), -1))

    def test_shift_moves_and_mirrors_at_the_border(self):
        moved = effects.apply_affine(image(), self.matrix(shift=0.25)(0.5, 0.5, 0.5, 1.0, 0.5))
        assert np.array_equal(moved[:, :30], image()[:, 10:])
        assert np.array_equal(moved[:, 30:39], image()[:, 38:29:-1])

    def test_zoom_magnifies_about_the_centre(self):
        zoomed = effects.apply_affine(image(), self.matrix(zoom=(2.0, 2.0))(0.5, 0.5, 0.0))
        assert np.abs(zoomed[::2, ::2].astype(int) - image()[10:30, 10:30]).max() <= 4
        smaller = effects.apply_affine(image(), self.matrix(zoom=(0.5, 0.5))(0.5, 0.5, 0.0))
        assert np.abs(smaller[10:30, 10:30].astype(int) - image()[::2, ::2]).max() <= 6

    def test_shear_leaves_the_middle_row(self):
        sheared = effects.apply_affine(image(), self.matrix(shear=45.0)(0.5, 1.0))
        assert np.abs(sheared[20, 5:35].astype(int) - image()[20, 5:35]).max() <= 4
        assert np.abs(sheared[5, 20].astype(int) - image()[5, 20]).max() > 30

    def test_extreme_settings_still_give_an_image(self):
        matrix = self.matrix(rotate=180.0, shift=1.0, shear=60.0, zoom=(0.1, 0.1))(0.8, 1.0, 0.0, 1.0, 0.0)
        assert effects.apply_affine(image(), matrix).shape == (40, 40, 3)


class TestColor:
    def apply(self, draws, **settings):
        return effects.apply_color(image(), Color(**settings), np.array(draws)).astype(float)

    def test_no_range_changes_nothing(self):
        assert np.abs(self.apply([0.9, 0.1, 0.8, 0.3]) - image()).max() <= 1

    def test_each_does_its_part(self):
        plain = image().astype(float)
        assert np.allclose(self.apply([0.25, 0, 0, 0], brightness=1.0), plain * 0.5, atol=1)
        gray = self.apply([0, 0, 0.0, 0], saturation=1.0)
        assert np.ptp(gray, axis=-1).max() <= 1
        flat = self.apply([0, 0.0, 0, 0], contrast=1.0)
        assert flat.std() <= 1
        assert abs(flat.mean() - (plain @ [0.299, 0.587, 0.114]).mean()) < 2
        turned = self.apply([0, 0, 0, 1.0], hue=0.5)
        luminance = np.array([0.299, 0.587, 0.114])
        inside = (turned > 2).all(-1) & (turned < 253).all(-1)
        assert np.abs((turned - plain) @ luminance)[inside].max() < 3
        assert np.abs(turned - plain).max() > 50


class TestErase:
    def test_replaces_a_rectangle_as_often_as_asked(self):
        erase, changed = Erase(probability=0.3, area=(0.1, 0.1)), 0
        random = np.random.default_rng(0)
        for number in range(400):
            before = image()
            after = effects.apply_erase(before, erase, random.random(6), number)
            assert np.array_equal(before, image())
            touched = (after != before).any(axis=-1)
            if touched.any():
                changed += 1
                rows, columns = np.flatnonzero(touched.any(1)), np.flatnonzero(touched.any(0))
                area = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
                assert 0.05 < area / touched.size < 0.12
        assert 90 < changed < 150


NOISY = np.random.default_rng(5).integers(20, 220, (40, 40, 3)).astype(np.uint8)


class TestRandAugment:
    def test_magnitude_zero_of_continuous_operations_changes_nothing(self):
        keep = 0
        for choice in range(14):
            draws = np.array([(choice + 0.5) / 14, 0.2])
            out = effects.apply_randaugment(NOISY, RandAugment(operations=1, magnitude=0), draws)
            keep += bool(np.array_equal(out, NOISY))
        # All but autocontrast and equalize, which know no strength; solarize at 256 inverts nothing.
        assert keep == 12

    def test_full_magnitude_changes_both_ways(self):
        results = {
            (choice, sign): effects.apply_randaugment(
                NOISY, RandAugment(operations=1, magnitude=10), np.array([(choice + 0.5) / 14, sign])
            ).tobytes()
            for choice in range(14)
            for sign in (0.2, 0.8)
        }
        assert sum(results[choice, 0.2] != NOISY.tobytes() for choice in range(14)) == 13
        assert sum(results[choice, 0.2] != results[choice, 0.8] for choice in range(14)) == 9
