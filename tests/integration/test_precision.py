"""The mixed formats take the float32 update, to their own rounding, and MixUp and class weights go through."""

import numpy as np
import pytest

from distxcept.config.schema import Config
from distxcept.data.dataset import Input
from distxcept.engines.single import SingleEngine
from distxcept.training.build import build_training
from distxcept.training.schedule import update_key


def first_update(precision: str, **overrides) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], object]:
    """Weights before and after one update of 16 images, and its outcome."""
    config = Config.model_validate(
        {
            "model": {
                "image_size": 71,
                "width": 0.0625,
                "middle_blocks": 1,
                "dropout": 0.0,
                "class_weights": "balanced",
            },
            "data": {"train": {"kind": "synthetic", "samples": 16, "classes": 4}, **overrides},
            "batch": {"global": 16, "virtual": 8},
            "optimizer": {"momentum": 0.0, "learning_rate": 0.1},
            "precision": precision,
        }
    )
    training = build_training(config, SingleEngine("CPU:0"))
    state = training.update.state
    before = state.read_inference()
    with Input(training.reading, training.plan, range(1)) as batches:
        batch = next(batches)
    outcome = training.update(batch, training.plan, key=update_key(0, 0), rate=0.1)
    return before, state.read_inference(), outcome


@pytest.fixture(scope="module")
def reference():
    return first_update("float32")


@pytest.mark.parametrize(("precision", "epsilon"), [("mixed_float16", 2**-10), ("mixed_bfloat16", 2**-7)])
def test_mixed_formats_step_like_float32(reference, precision, epsilon):
    """The last layer to a few roundings of the format. Further down, a random deep network amplifies every rounding
    (float32 differs from float64 by 1e-3 there), so the whole step is held to its direction."""
    before, expected, outcome = reference
    _, found, mixed = first_update(precision)
    assert mixed.applied
    assert mixed.samples == 16
    assert mixed.loss_sum == pytest.approx(outcome.loss_sum, rel=4 * epsilon)
    assert {value.dtype for value in found.values()} == {np.dtype(np.float32)}
    steps = {name: (expected[name] - before[name]).ravel() for name in before}
    mixed_steps = {name: (found[name] - before[name]).ravel() for name in before}
    for name in ("predictions/kernel", "predictions/bias"):
        error = np.linalg.norm(mixed_steps[name] - steps[name])
        assert error < 8 * epsilon * np.linalg.norm(steps[name])
    whole, mixed_whole = np.concatenate(list(steps.values())), np.concatenate(list(mixed_steps.values()))
    assert whole @ mixed_whole > 0.9 * np.linalg.norm(whole) * np.linalg.norm(mixed_whole)


def test_mixing_changes_the_update_and_stays_finite(reference):
    _, plain, _ = reference
    _, mixed, outcome = first_update("float32", augment={"flip": False, "mixup": 0.4, "cutmix": 1.0})
    assert outcome.applied
    assert np.isfinite(outcome.gradient_norm)
    assert not np.array_equal(mixed["predictions/kernel"], plain["predictions/kernel"])
