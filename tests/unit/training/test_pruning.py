"""The schedule from a table, and the mask against its definition."""

import numpy as np
import pytest
import tensorflow as tf

from distxcept.config.schema import Pruning
from distxcept.model.layout import Layout
from distxcept.training.pruning import prunable, prune, prune_to, sparsity_at

CONFIG = Pruning(final_sparsity=0.8, begin_update=10, end_update=30, every_updates=5)


@pytest.mark.parametrize(
    ("update", "part"),
    [(0, 0.0), (9, 0.0), (10, 0.0), (20, 0.8 * (1 - 0.5**3)), (30, 0.8), (31, 0.8), (1000, 0.8)],
)
def test_sparsity(update, part):
    assert sparsity_at(CONFIG, update) == pytest.approx(part)


def test_only_some_updates_prune():
    pruning = [update for update in range(60) if prune_to(CONFIG, update) > 0]
    assert pruning == [15, 20, 25, 30, 35, 40, 45, 50, 55]
    off_beat = CONFIG.model_copy(update={"end_update": 32})
    assert prune_to(off_beat, 32) == pytest.approx(0.8)  # the end counts, whatever the beat
    assert prune_to(None, 5) == 0.0


def test_what_is_pruned():
    layout = Layout(classes=3, width=0.125)
    pruned = prunable(layout)
    assert "block14_sepconv2/pointwise_kernel" in pruned
    assert {"block1_conv2/kernel", "block2_residual/kernel"} <= pruned
    assert not pruned & {"block1_conv1/kernel", "predictions/kernel", "predictions/bias"}
    assert all(name.endswith("kernel") and "depthwise" not in name for name in pruned)


@pytest.mark.parametrize("part", [0.0, 0.001, 0.25, 0.5, 0.99])
def test_the_smallest_part_is_zero(part):
    chance = np.random.default_rng(2)
    old, new = chance.normal(size=(2, 3, 3, 8, 10))
    pruned = prune(tf.constant(old), tf.constant(new), tf.constant(part, tf.float64)).numpy()
    assert np.sum(pruned == 0) == int(part * new.size)
    kept, lost = np.abs(new[pruned != 0]), np.abs(new[pruned == 0])
    assert not lost.size or lost.max() < kept.min()
    assert np.array_equal(pruned[pruned != 0], new[pruned != 0])


def test_what_is_zero_stays_zero_and_counts():
    old = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    new = np.array([9.0, 9.0, 1.0, 2.0, 3.0, 4.0])
    for part, expected in [(0.0, [0, 0, 1, 2, 3, 4]), (0.3, [0, 0, 1, 2, 3, 4]), (0.5, [0, 0, 0, 2, 3, 4])]:
        pruned = prune(tf.constant(old), tf.constant(new), tf.constant(part, tf.float64))
        assert pruned.numpy().tolist() == expected
