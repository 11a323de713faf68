from math import nan

import numpy as np
import pytest

from distxcept.training.scores import SampleOutcomes
from distxcept.training.validating import result_of


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
