"""When two models count as the same, from tables."""

import numpy as np
import pytest

from distxcept.export.comparing import Comparison, compare, made_up_images, spread


@pytest.mark.parametrize(
    ("total", "wanted", "numbers"),
    [(10, 5, [0, 2, 4, 6, 8]), (3, 5, [0, 1, 2]), (7, 3, [0, 2, 4]), (0, 5, []), (5, 5, [0, 1, 2, 3, 4])],
)
def test_spread(total, wanted, numbers):
    assert spread(total, wanted) == numbers


def test_compare():
    before = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]], np.float32)
    after = np.array([[0.8, 0.2], [0.6, 0.4], [0.2, 0.8]], np.float32)
    found = compare(before, after, np.array([0, 1, 0]))
    assert found.largest_difference == pytest.approx(0.2)
    assert found.agreement == pytest.approx(2 / 3)
    assert (found.accuracy_before, found.accuracy_after) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert found.warning() == "33.3 points of top-1 are lost"
    assert compare(before, before, None).warning() is None


@pytest.mark.parametrize(
    ("after", "text"), [(0.925, None), (0.92, "1.5 points of top-1 are lost"), (0.94, None)]
)
def test_one_point_may_be_lost(after, text):
    found = Comparison(200, 0.1, 1.0, 0.935, after)
    assert found.warning() == text


@pytest.mark.parametrize(
    ("kind", "difference", "kept"),
    [
        ("float32", 1e-4, True),
        ("float32", 2e-3, False),
        ("float16", 2e-3, True),
        ("float16", 0.03, False),
        ("int8", 0.3, True),
        ("float32", float("nan"), False),
        ("int8", float("nan"), False),
    ],
)
def test_what_is_kept(kind, difference, kept):
    comparison = Comparison(10, difference, 1.0, 1.0, 1.0)
    assert (comparison.problem(kind) is None) is kept


def test_made_up_images_differ():
    images = made_up_images(4, 71).images
    assert images.shape == (4, 71, 71, 3)
    assert len({image.tobytes() for image in images}) == 4
