"""Scores against values worked out by hand."""

import json

import numpy as np
import pytest

from distxcept.report.scores_text import scores_text
from distxcept.training.scores import (
    SampleOutcomes,
    calibration_bins,
    confusion_matrix,
    mean_interval,
    proportion_interval,
    score,
)


def outcomes(labels, predicted, confidences=None, losses=None):
    count = len(labels)
    return SampleOutcomes(
        np.arange(count),
        np.array(labels),
        np.array(predicted),
        np.array(confidences if confidences is not None else [0.5] * count),
        np.array(losses if losses is not None else [1.0] * count),
        np.array([True] * count),
    )


def test_confusion_matrix():
    matrix = confusion_matrix(np.array([0, 0, 1, 2, 2, 2]), np.array([0, 1, 1, 2, 0, 2]), 3)
    assert matrix.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 2]]


def test_class_scores():
    """Class c has no sample but is called once; class d has neither."""
    result = score(outcomes([0, 0, 0, 1, 1], [0, 0, 1, 1, 2]), ("a", "b", "c", "d"))
    a, b, c, d = result.classes
    assert (a.samples, a.precision, a.recall, a.f1) == (3, 1.0, pytest.approx(2 / 3), pytest.approx(0.8))
    assert (b.samples, b.precision, b.recall, b.f1) == (2, 0.5, 0.5, 0.5)
    assert (c.samples, c.precision, c.recall, c.f1, c.recall_interval) == (0, 0.0, None, 0.0, None)
    assert (d.samples, d.precision, d.recall, d.f1) == (0, None, None, None)
    # over the classes that have samples
    assert result.macro_precision == pytest.approx(0.75)
    assert result.macro_recall == pytest.approx((2 / 3 + 0.5) / 2)
    assert result.macro_f1 == pytest.approx(0.65)
    assert result.accuracy == pytest.approx(0.6)


def test_a_class_that_is_never_called_counts_as_zero_in_the_mean():
    result = score(outcomes([0, 1], [0, 0]), ("a", "b"))
    assert result.classes[1].precision is None
    assert result.macro_precision == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("confidences", "correct", "error"),
    [
        ([1.0, 1.0], [True, True], 0.0),
        ([1.0, 1.0], [False, False], 1.0),
        ([0.5, 0.5], [True, False], 0.0),
        # two bins: |0.9 − 0.5| for two samples, |0.3 − 1| for one
        ([0.9, 0.9, 0.3], [True, False, True], (2 * 0.4 + 0.7) / 3),
    ],
)
def test_calibration_error(confidences, correct, error):
    result = score(outcomes([0] * len(correct), [0 if c else 1 for c in correct], confidences), ("a", "b"))
    assert result.calibration_error == pytest.approx(error)
    assert sum(one.samples for one in result.calibration) == len(correct)


def test_confidence_on_an_edge_belongs_to_the_bin_below():
    (low, high) = calibration_bins(np.array([0.0, 0.2, 0.2000001]), np.array([True] * 3), bins=5)
    assert (low.samples, high.samples) == (2, 1)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662)],
)
def test_proportion_interval(successes, trials, low, high):
    """Published values of Wilson's interval."""
    assert proportion_interval(successes, trials) == pytest.approx((low, high), abs=1e-4)


def test_mean_interval():
    low, high = mean_interval(np.array([1.0, 2.0, 3.0, 4.0]))
    assert (low + high) / 2 == pytest.approx(2.5)
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(5 / 3) / 2, rel=1e-4)
    assert mean_interval(np.array([2.0])) == (2.0, 2.0)


def test_json_is_plain():
    result = score(outcomes([0, 1, 1], [0, 1, 0]), ("a", "b"))
    read = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert read["confusion_matrix"] == [[1, 0], [1, 1]]
    assert read["classes"][1]["name"] == "b"


def test_text_of_few_classes_has_the_matrix_and_no_control_character():
    text = scores_text(score(outcomes([0, 1, 1], [0, 1, 0]), ("a", "b\x1b[31m")))
    assert "\x1b" not in text
    assert any(line.split() == ["(1)", "b\\x1b[31m", "1", "1"] for line in text.splitlines())


def test_text_of_many_classes_tells_the_largest_confusions():
    names = tuple(f"c{number}" for number in range(20))
    text = scores_text(score(outcomes([3, 3, 3, 7, 8], [4, 4, 3, 2, 8]), names))
    lines = text[text.index("largest confusions") :].splitlines()[1:]
    assert [line.split() for line in lines] == [["2", "c3", "→", "c4"], ["1", "c7", "→", "c2"]]
