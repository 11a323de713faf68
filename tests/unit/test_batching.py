"""Batch arithmetic from tables and properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxcept.batching import BatchPlan, plan_batches, split_contiguous
from distxcept.errors import ConfigError


@pytest.mark.parametrize(
    ("items", "shares", "sizes"),
    [
        (8, (1,), [8]),
        (8, (1, 1), [4, 4]),
        (8, (1, 1, 1), [2, 3, 3]),
        (1, (1, 1, 1), [0, 0, 1]),
        (9, (2, 1), [6, 3]),
        (3, (2, 1), [2, 1]),
        (5, (0, 1), [0, 5]),
        (0, (1, 1), [0, 0]),
    ],
)
def test_split(items, shares, sizes):
    assert [len(block) for block in split_contiguous(items, shares)] == sizes


def plan(**kwargs) -> BatchPlan:
    defaults = dict(samples=100, global_batch=24, virtual_batch=4, micro_batch=8, replicas=1)
    return plan_batches(**(defaults | kwargs))


def test_short_last_update():
    p = plan()
    assert p.updates_per_epoch == 5
    assert [p.real_samples(u) for u in range(5)] == [24, 24, 24, 24, 4]
    assert p.virtual_batches(4) == 1
    assert plan(keep_remainder=False).updates_per_epoch == 4
    assert plan(keep_remainder=False).samples_per_epoch == 96
    with pytest.raises(IndexError):
        p.real_samples(5)


def test_micro_steps():
    assert plan(micro_batch=16).micro_steps(6) == [4, 2]
    assert plan(micro_batch=4).micro_steps(3) == [1, 1, 1]
    assert plan().micro_steps(0) == []


@pytest.mark.parametrize(
    ("virtual", "micro", "cores", "size", "at_once", "taken"),
    [
        (16, 64, 1, 4, 1, 64),
        (16, 64, 2, 1, 2, 32),  # more than a batch for each core would only take memory
        (16, 16, 2, 1, 1, 16),
        (16, 48, 2, 1, 2, 32),
        (16, 64, 8, 4, 1, 64),  # not enough for all cores: they share each operation
        (4, 64, 2, 2, 2, 16),
        (4, 16, 2, 2, 2, 16),
        (4, 8, 2, 1, 2, 8),
        (4, 12, 2, 1, 2, 8),
        (2, 32, 2, 4, 2, 16),
        (2, 2, 2, 1, 1, 2),
        (1, 64, 4, 8, 4, 32),
    ],
)
def test_parts_for_the_cores_of_a_cpu(virtual, micro, cores, size, at_once, taken):
    p = plan(samples=192, global_batch=192, virtual_batch=virtual, micro_batch=micro, cores=cores)
    assert (p.virtual_per_part, p.side_by_side, p.micro_batch) == (size, at_once, taken)
    assert p.with_micro(p.micro_batch) == p
    assert p.with_micro(virtual).side_by_side == 1


@pytest.mark.parametrize(
    ("whole", "micro", "cores", "expected"),
    [
        (64, 32, 2, True),
        (48, 32, 2, False),  # three parts on two cores: one of them idle for a quarter of the time
        (16 * 25, 32, 2, True),  # the same once in 13 rounds
        (64, 16, 2, False),
        (64, 64, 8, False),
        (64, 64, 1, False),
    ],
)
def test_a_core_for_each_part(whole, micro, cores, expected):
    p = plan(samples=whole, global_batch=whole, virtual_batch=16, micro_batch=micro, cores=cores)
    assert p.core_each is expected


def test_a_shorter_last_part_runs_alone():
    """Seven virtual batches in parts of two: three parts on two cores, and then one of half the size."""
    p = plan(samples=28, global_batch=28, virtual_batch=4, micro_batch=16, cores=2)
    assert not p.core_each


def test_no_update_is_as_large_as_the_global_batch():
    assert not plan(samples=16, global_batch=64, virtual_batch=16, micro_batch=32, cores=2).core_each


def test_parts_are_told():
    assert (
        "32, 2 parts side by side; batch norm over 16"
        in plan(samples=64, global_batch=64, virtual_batch=16, micro_batch=32, cores=2).equation()
    )


@pytest.mark.parametrize(
    ("kwargs", "needles"),
    [
        (dict(global_batch=25), ["25 / 4 = 6 remainder 1", "virtual batches that work: 1, 5", "24, 28"]),
        (dict(micro_batch=6), ["6 / 4 = 1 remainder 2", "4, 8"]),
        (dict(micro_batch=48), ["batch.micro = 48", "batch.global = 24"]),
        (dict(replicas=2, shares=[1]), ["1 entries for 2 replicas"]),
        (dict(replicas=2, shares=[0, 0]), ["[0, 0]"]),
        (dict(samples=10, keep_remainder=False), ["10 / 24", "data.remainder=keep"]),
        (dict(replicas=3, lanes=8, micro_batch=4), ["8 / 3 = 2 remainder 2", "1, 2, 4, 8"]),
        (dict(replicas=2, lanes=8), ["batch.micro=4"]),
        (dict(virtual_batch=0), ["batch.virtual = 0"]),
        (dict(samples=0), ["samples = 0"]),
    ],
)
def test_errors_print_the_equation(kwargs, needles):
    with pytest.raises(ConfigError) as caught:
        plan(**kwargs)
    for needle in needles:
        assert needle in str(caught.value)
    assert "\n" not in str(caught.value)


@st.composite
def plans(draw) -> BatchPlan:
    virtual = draw(st.integers(1, 6))
    virtual_per_update = draw(st.integers(1, 12))
    replicas = draw(st.integers(1, 7))
    shares = draw(st.none() | st.lists(st.integers(1, 5), min_size=replicas, max_size=replicas))
    return plan_batches(
        samples=draw(st.integers(1, 400)),
        global_batch=virtual * virtual_per_update,
        virtual_batch=virtual,
        micro_batch=virtual * draw(st.integers(1, virtual_per_update)),
        replicas=replicas,
        shares=shares,
        cores=draw(st.integers(1, 9)),
    )


@given(plans())
def test_every_sample_exactly_once(p: BatchPlan):
    seen: list[int] = []
    for update in range(p.updates_per_epoch):
        start = update * p.global_batch
        for replica in range(p.replicas):
            block = p.block(update, replica)
            assert sum(p.micro_steps(len(block))) == len(block)
            assert all(0 < size <= p.virtual_per_micro for size in p.micro_steps(len(block)))
            assert sum(p.parts(len(block))) == len(block)
            assert p.virtual_per_part * p.side_by_side <= p.virtual_per_micro
            for j in block:
                first = start + j * p.virtual_batch
                seen += range(first, min(first + p.virtual_batch, p.samples))
    assert seen == list(range(p.samples))


@given(plans())
def test_even_blocks_differ_by_at_most_one(p: BatchPlan):
    if len(set(p.shares)) == 1:
        sizes = [len(block) for block in p.blocks(p.virtual_per_update)]
        assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 64), st.sampled_from([1, 2, 4, 8]))
def test_lanes_do_not_depend_on_replicas(virtual_batches, replicas):
    p = plan_batches(samples=64, global_batch=64, virtual_batch=1, micro_batch=1, replicas=replicas, lanes=8)
    lanes = p.lane_blocks(virtual_batches)
    dealt = [j for block in p.blocks(virtual_batches) for j in block]
    assert dealt == [j for lane in lanes for j in lane] == list(range(virtual_batches))
    per_replica = 8 // replicas
    for k, block in enumerate(p.blocks(virtual_batches)):
        assert list(block) == [j for lane in lanes[k * per_replica : (k + 1) * per_replica] for j in lane]
