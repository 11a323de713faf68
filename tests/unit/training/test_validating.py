from math import nan
from types import SimpleNamespace

import numpy as np
import pytest

from distxcept.training.scores import SampleOutcomes
from distxcept.training.validating import Validation, result_of


def outcomes(labels, predicted, losses, in_top5) -> SampleOutcomes:
    count = len(labels)
    return SampleOutcomes(
        np.arange(count), np.array(labels, int), np.array(predicted, int), np.ones(count), np.array(losses, float),
        np.array(in_top5, bool),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (outcomes([0, 1, 2, 2], [0, 1, 1, 0], [0.5, 0.25, 1.0, 2.25], [1, 1, 1, 0]), (4, 1.0, 0.5, 0.75)),
        (outcomes([], [], [], []), (0, nan, nan, nan)),
    ],
)
def test_result_of_outcomes(found, expected):
    result = result_of(found)
    told = (result.samples, result.loss, result.accuracy, result.top5_accuracy)
    assert told == pytest.approx(expected, nan_ok=True)


def test_every_evaluation_tells_its_outcomes():
    """Which one is the last of a training, nobody knows that is going to be stopped."""
    found, told = outcomes([0, 1], [0, 0], [0.5, 1.5], [1, 1]), []
    training = SimpleNamespace(
        validation=range(2),
        validation_reading=None,
        evaluate=lambda reading, **options: found,
    )
    tell = SimpleNamespace(predicted=lambda *arguments: told.append(arguments))
    validation = Validation(training, tell, SimpleNamespace(found=None), None)
    for update in (10, 20):
        assert validation.evaluate(8, update=update).loss == 1.0
    assert told == [(found, training.validation, 10), (found, training.validation, 20)]
