"""The epoch order: exactly once, whoever computes it, from wherever it starts, and it looks random."""

import itertools
from collections import Counter
from functools import cache

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from distxcept.batching import plan_batches
from distxcept.data import order as order_module
from distxcept.data.order import PADDING, update_indices


@cache
def traced(samples):
    def of(positions, seed, epoch):
        return order_module.permute(positions, samples=samples, seed=seed, epoch=epoch)

    spec = tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int64)
    return tf.function(of, input_signature=spec, autograph=False)


def permute(positions, *, samples, seed, epoch):
    tensors = (tf.constant(value, tf.int64) for value in (positions, seed, epoch))
    return traced(samples)(*tensors).numpy()


def test_traced_and_eager_agree():
    eager = order_module.permute(np.arange(100), samples=100, seed=2**62 + 1, epoch=7).numpy()
    assert np.array_equal(eager, permute(np.arange(100), samples=100, seed=2**62 + 1, epoch=7))


@pytest.mark.parametrize(
    "samples", [*range(1, 66), 99, 100, 101, 255, 256, 257, 1000, 4095, 4097, 65537, 100_003]
)
def test_is_a_bijection(samples):
    for seed, epoch in ((0, 0), (1, 0), (0, 1), (2**31 - 1, 10**6)):
        order = permute(np.arange(samples), samples=samples, seed=seed, epoch=epoch)
        assert np.array_equal(np.sort(order), np.arange(samples))


def test_random_access_agrees_with_the_whole():
    whole = permute(np.arange(1000), samples=1000, seed=5, epoch=3)
    picked = np.array([999, 0, 17, 500])
    assert np.array_equal(permute(picked, samples=1000, seed=5, epoch=3), whole[picked])


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32, 2**62])
def test_every_part_of_the_seed_counts(seed):
    order = permute(np.arange(100), samples=100, seed=seed, epoch=0)
    for other, epoch in ((seed + 1, 0), (seed + 2**32, 0), (seed, 1)):
        assert not np.array_equal(order, permute(np.arange(100), samples=100, seed=other, epoch=epoch))


def test_large_numbers_of_samples_cost_no_memory_and_no_time():
    samples = 10**12
    order = permute(np.arange(samples - 4096, samples), samples=samples, seed=1, epoch=1)
    assert len(np.unique(order)) == 4096
    assert order.min() >= 0
    assert order.max() < samples


def test_known_values_stay_as_they_are():
    """A run resumed with a later version must see the same order, so this is part of the format."""
    assert permute(np.arange(8), samples=8, seed=0, epoch=0).tolist() == [6, 1, 4, 7, 5, 3, 0, 2]
    assert permute(np.arange(5), samples=1000, seed=42, epoch=7).tolist() == [73, 402, 765, 977, 745]


@pytest.mark.parametrize("samples", [3, 4])
def test_small_permutations_are_all_about_equally_likely(samples):
    seen = Counter(
        tuple(permute(np.arange(samples), samples=samples, seed=seed, epoch=0)) for seed in range(2400)
    )
    expected = 2400 / len(list(itertools.permutations(range(samples))))
    assert len(seen) == len(list(itertools.permutations(range(samples))))
    chi_squared = sum((count - expected) ** 2 / expected for count in seen.values())
    assert chi_squared < {3: 25.7, 4: 58.6}[samples]  # p = 1e-4


def test_every_sample_lands_everywhere_equally_often():
    samples, epochs = 50, 4000
    counts = np.zeros((samples, samples))
    for epoch in range(epochs):
        counts[np.arange(samples), permute(np.arange(samples), samples=samples, seed=9, epoch=epoch)] += 1
    expected = epochs / samples
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    freedom = (samples - 1) ** 2
    assert abs(chi_squared - freedom) < 5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("samples", [1000, 4096, 100_003])
def test_looks_random(samples):
    """Neighbours, other epochs and other seeds are uncorrelated; fixed points are about one, as in any shuffle."""
    here = permute(np.arange(samples), samples=samples, seed=3, epoch=0).astype(float)
    bound = 5 / np.sqrt(samples)
    assert abs(np.corrcoef(here[:-1], here[1:])[0, 1]) < bound
    assert abs(np.corrcoef(here, np.arange(samples))[0, 1]) < bound
    for seed, epoch in ((3, 1), (4, 0)):
        other = permute(np.arange(samples), samples=samples, seed=seed, epoch=epoch)
        assert abs(np.corrcoef(here, other)[0, 1]) < bound
        assert (here == other).sum() < 10
    descents = (np.diff(here) < 0).mean()
    assert abs(descents - 0.5) < bound


@st.composite
def cases(draw):
    virtual = draw(st.integers(1, 9))
    per_update = draw(st.integers(1, 9))
    replicas = draw(st.integers(1, 6))
    shares = draw(st.none() | st.lists(st.integers(0, 4), min_size=replicas, max_size=replicas).filter(sum))
    plan = plan_batches(
        samples=draw(st.integers(1, min(400, 12 * virtual * per_update))),
        global_batch=virtual * per_update,
        virtual_batch=virtual,
        micro_batch=virtual * draw(st.integers(1, per_update)),
        replicas=replicas,
        shares=shares,
    )
    return plan, draw(st.integers(0, 2**31)), draw(st.integers(0, 100)), draw(st.integers(0, 10**6))


@given(cases())
def test_every_sample_once_an_epoch_in_the_same_order_for_every_world(case):
    plan, seed, epoch, resume = case
    whole = permute(np.arange(plan.samples), samples=plan.samples, seed=seed, epoch=epoch)
    seen: list[int] = []
    for update in range(plan.updates_per_epoch):
        rows = [
            update_indices(plan, seed=seed, epoch=epoch, update=update, virtual=plan.block(update, replica))
            for replica in range(plan.replicas)
        ]
        flat = np.concatenate([row.reshape(-1) for row in rows])
        real = plan.real_samples(update)
        assert (flat[real:] == PADDING).all()
        assert np.array_equal(flat[:real], whole[update * plan.global_batch :][:real])
        seen.extend(flat[:real])
    assert sorted(seen) == list(range(plan.samples))

    resumed = resume % plan.updates_per_epoch
    for replica in range(plan.replicas):
        block = plan.block(resumed, replica)
        again = update_indices(plan, seed=seed, epoch=epoch, update=resumed, virtual=block)
        expected = whole[resumed * plan.global_batch :][: plan.global_batch]
        expected = expected[block.start * plan.virtual_batch : block.stop * plan.virtual_batch]
        assert np.array_equal(again.reshape(-1)[: len(expected)], expected)


def test_without_a_seed_the_order_is_natural():
    plan = plan_batches(samples=5, global_batch=4, virtual_batch=2, micro_batch=2)
    assert update_indices(plan, seed=None, epoch=3, update=0, virtual=range(2)).tolist() == [[0, 1], [2, 3]]
    assert update_indices(plan, seed=None, epoch=3, update=1, virtual=range(1)).tolist() == [[4, PADDING]]
    assert update_indices(plan, seed=None, epoch=3, update=1, virtual=range(1, 1)).shape == (0, 2)
