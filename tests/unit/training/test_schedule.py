"""The learning rate of chosen updates, worked out by hand."""

import pytest

from distxcept.config.load import load_config
from distxcept.config.schema import OptimizerSection
from distxcept.training.schedule import learning_rate, warmup_notice
from tests.pages import REPOSITORY

EXPONENTIAL = {"kind": "exponential"}
STEP = {"kind": "step", "at_epochs": [2, 3.5]}
COSINE = {"kind": "cosine"}


@pytest.mark.parametrize(
    ("section", "update", "expected"),
    [
        # 10 updates an epoch, 100 in all, base rate 0.8
        ({}, 0, 0.8),
        ({}, 99, 0.8),
        # The paper: × 0.94 every 2 epochs, in steps
        ({"schedule": EXPONENTIAL}, 0, 0.8),
        ({"schedule": EXPONENTIAL}, 19, 0.8),
        ({"schedule": EXPONENTIAL}, 20, 0.8 * 0.94),
        ({"schedule": EXPONENTIAL}, 39, 0.8 * 0.94),
        ({"schedule": EXPONENTIAL}, 40, 0.8 * 0.94**2),
        ({"schedule": {**EXPONENTIAL, "staircase": False}}, 0, 0.8),
        ({"schedule": {**EXPONENTIAL, "staircase": False}}, 5, 0.8 * 0.94**0.25),
        ({"schedule": {**EXPONENTIAL, "staircase": False}}, 20, 0.8 * 0.94),
        # 0.3 epochs / 0.1 is a little less than 3 in floating point
        ({"schedule": {**EXPONENTIAL, "every_epochs": 0.1, "decay": 0.5}}, 3, 0.8 * 0.5**3),
        ({"schedule": {**EXPONENTIAL, "every_epochs": 0.7, "decay": 0.5}}, 6, 0.8),
        ({"schedule": {**EXPONENTIAL, "every_epochs": 0.7, "decay": 0.5}}, 49, 0.8 * 0.5**7),
        ({"schedule": STEP}, 19, 0.8),
        ({"schedule": STEP}, 20, 0.08),
        ({"schedule": STEP}, 34, 0.08),
        ({"schedule": STEP}, 35, 0.008),
        ({"schedule": {**STEP, "factor": 0.5}}, 99, 0.2),
        ({"schedule": COSINE}, 0, 0.8),
        ({"schedule": COSINE}, 33, 0.8 * 0.75),
        ({"schedule": COSINE}, 99, 0.0),
        ({"schedule": {**COSINE, "final": 0.25}}, 66, 0.8 * (0.25 + 0.75 * 0.25)),
        ({"schedule": {**COSINE, "final": 0.25}}, 99, 0.2),
        # Warm-up: the first update already moves, the last one of it has the full rate
        ({"warmup_updates": 4}, 0, 0.2),
        ({"warmup_updates": 4}, 3, 0.8),
        ({"warmup_updates": 4}, 4, 0.8),
        ({"warmup_updates": 30, "schedule": EXPONENTIAL}, 29, 0.8),
        ({"warmup_updates": 30, "schedule": EXPONENTIAL}, 30, 0.8 * 0.94),
        ({"warmup_updates": 10, "schedule": COSINE}, 10, 0.8),
        ({"warmup_updates": 10, "schedule": COSINE}, 99, 0.0),
        ({"warmup_updates": 100, "schedule": COSINE}, 99, 0.8),
        # Linear scaling: global batch 512
        ({"base_batch": 256}, 7, 1.6),
        ({"base_batch": 1024, "warmup_updates": 2}, 0, 0.2),
        ({"base_batch": 256, "schedule": COSINE}, 99, 0.0),
    ],
)
def test_rate(section: dict, update: int, expected: float):
    config = OptimizerSection(learning_rate=0.8, **section)
    rate = learning_rate(config, update=update, updates_per_epoch=10, total_updates=100, global_batch=512)
    assert rate == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_a_run_of_one_update_has_a_rate():
    for schedule in (EXPONENTIAL, STEP, COSINE):
        config = OptimizerSection(learning_rate=0.8, schedule=schedule)
        rate = learning_rate(config, update=0, updates_per_epoch=1, total_updates=1, global_batch=1)
        assert rate == 0.8


@pytest.mark.parametrize(
    ("warmup", "total", "told"), [(0, 1, False), (49, 50, False), (50, 50, True), (50, 45, True)]
)
def test_a_warmup_as_long_as_the_run_is_told(warmup, total, told):
    notice = warmup_notice(OptimizerSection(warmup_updates=warmup), total)
    assert (notice is not None) == told
    if told:
        assert f"not over when the run ends after {total}; set optimizer.warmup_updates lower" in notice


def test_the_recipe_for_fine_tuning_is_warm_soon_on_few_photos():
    """96 of 120 photos make three updates of 32 an epoch."""
    config = load_config(REPOSITORY / "configs" / "finetune.yaml")
    assert 4 * config.optimizer.warmup_updates <= 3 * config.run.epochs
