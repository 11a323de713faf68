"""MixUp and CutMix: partners, labels, weights, and the same result whoever computes the virtual batch."""

import numpy as np
import pytest
import tensorflow as tf

from distxcept.data.mix import beta_quantiles, mix

V, SIZE, CLASSES = 6, 8, 6
SEEDS = tf.constant([[1, 2], [3, 4], [5, 6]], tf.int32)


def batch(groups=3, dtype=tf.float64):
    """Image k is k everywhere and has class k mod V, so that every mixture can be read off."""
    numbers = tf.range(groups * V)
    images = tf.ones([groups * V, SIZE, SIZE, 3], dtype) * tf.cast(numbers, dtype)[:, None, None, None]
    return images, tf.one_hot(numbers % V, CLASSES, dtype=dtype), tf.ones([groups * V])


@tf.function(autograph=False)
def run(images, labels, weights, seeds, mixup, cutmix):
    return mix(images, labels, weights, seeds, mixup=mixup, cutmix=cutmix)


@pytest.mark.parametrize("alphas", [(0.2, 0.0), (0.0, 1.0), (0.4, 1.0)])
def test_a_virtual_batch_does_not_know_its_neighbours(alphas):
    images, labels, weights = batch()
    together = run(images, labels, weights, SEEDS, *alphas)
    for group in range(3):
        rows = slice(group * V, (group + 1) * V)
        alone = run(images[rows], labels[rows], weights[rows], SEEDS[group : group + 1], *alphas)
        for whole, part in zip(together, alone, strict=True):
            assert np.array_equal(whole[rows], part)


@pytest.mark.parametrize("alphas", [(1.0, 0.0), (0.0, 1.0)])
def test_labels_follow_the_pixels(alphas):
    images, labels, weights = batch()
    mixed, mixed_labels = (t.numpy() for t in run(images, labels, weights, SEEDS, *alphas))
    assert np.allclose(mixed_labels.sum(axis=1), 1)
    assert (np.count_nonzero(mixed_labels, axis=1) == 2).any()
    for row in range(len(mixed)):
        group = row // V
        assert mixed[row].mean() == pytest.approx(mixed_labels[row] @ np.arange(V) + group * V, abs=1e-6)


def test_cutmix_pastes_a_rectangle():
    images, labels, weights = batch(1)
    mixed = run(images, labels, weights, SEEDS[:1], 0.0, 1.0)[0].numpy()
    for row in range(V):
        foreign = mixed[row, :, :, 0] != row
        rows, columns = np.flatnonzero(foreign.any(1)), np.flatnonzero(foreign.any(0))
        assert foreign.sum() == len(rows) * len(columns)
        assert len(np.unique(mixed[row])) <= 2


@pytest.mark.parametrize("alphas", [(1.0, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("bad", [[0], [5], [1, 2, 4], [0, 1, 2, 3, 4], list(range(V))])
def test_weight_zero_is_never_a_partner(alphas, bad):
    images, labels, weights = batch(1)
    weights = tf.constant([0.0 if k in bad else 1.0 for k in range(V)])
    poisoned = tf.where((weights > 0)[:, None, None, None], images, tf.constant(np.nan, images.dtype))
    for seed in range(20):
        mixed, mixed_labels = run(poisoned, labels, weights, tf.constant([[seed, 7]]), *alphas)
        good = [k for k in range(V) if k not in bad]
        assert np.isfinite(mixed.numpy()[good]).all()
        assert not mixed_labels.numpy()[np.ix_(good, bad)].any()


def test_off_is_off_and_seeds_matter():
    images, labels, weights = batch(1)
    assert mix(images, labels, weights, SEEDS[:1], mixup=0.0, cutmix=0.0)[0] is images
    one, other = (run(images, labels, weights, SEEDS[k : k + 1], 1.0, 0.0)[0] for k in (0, 1))
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5, 1.0, 2.0, 8.0])
def test_quantiles_are_those_of_the_beta_distribution(alpha):
    table = beta_quantiles(alpha)
    assert (np.diff(table) >= 0).all()
    assert np.allclose(table + table[::-1], 1)
    sample = np.random.default_rng(0).beta(alpha, alpha, 400_000)
    places = np.linspace(0.05, 0.95, 19)
    ours = np.interp(places, np.linspace(0, 1, len(table)), table)
    assert np.abs(ours - np.quantile(sample, places)).max() < 0.006
    assert np.var(
        np.interp(np.random.default_rng(1).random(400_000), np.linspace(0, 1, len(table)), table)
    ) == (pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.02))
