"""Best, plateau and early stopping: decided on numbers alone."""

import math

import pytest

from distxcept.config.schema import EarlyStopping, OptimizerSection
from distxcept.training.progress import Progress, Watch


@pytest.mark.parametrize(
    ("metric", "values", "expected"),
    [
        ("validation_accuracy", [0.5, 0.4, 0.5, 0.6], [True, False, False, True]),
        ("validation_loss", [1.0, 1.1, 0.9, 0.9], [True, False, True, False]),
        ("validation_loss", [math.nan, 2.0, math.nan, 1.9], [False, True, False, True]),
        ("validation_accuracy", [math.nan, math.nan, 0.1], [False, False, True]),
    ],
)
def test_watch(metric, values, expected):
    watch = Watch()
    assert [watch.better(value, metric) for value in values] == expected


def test_a_run_that_once_kept_no_number_as_its_best_goes_on():
    watch = Watch(best=math.nan)
    assert watch.better(3.0, "validation_loss", 0.5) and watch.best == 3.0


def test_min_delta():
    watch = Watch()
    assert [watch.better(v, "validation_loss", 0.1) for v in (1.0, 0.95, 0.85)] == [True, False, True]


def test_early_stopping_after_patience():
    progress = Progress()
    stopping = EarlyStopping(metric="validation_loss", patience=2)
    stops = [progress.stop_early(stopping, {"validation_loss": v}) for v in (1.0, 0.9, 0.9, 0.91)]
    assert stops == [False, False, False, True]
    assert progress.finished
    assert not Progress().stop_early(None, {})


def test_plateau_lowers_the_rate_and_waits_again():
    optimizer = OptimizerSection.model_validate(
        {"plateau": {"metric": "validation_loss", "patience": 2, "factor": 0.5, "min_learning_rate": 0.02}}
    )
    progress = Progress()
    lowered = []
    for loss in (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0):
        rate = 0.1 * progress.rate_factor
        lowered.append(progress.reduce_on_plateau(optimizer, {"validation_loss": loss}, rate))
    assert lowered == [False, False, True, False, True, False, False]
    assert progress.rate_factor == 0.25


def test_json_round_trip():
    progress = Progress(update=5, rate_factor=0.5, best=Watch(best=0.9, waited=2))
    assert Progress.from_json(progress.to_json()) == progress
