"""How gradients are grouped for the wire: every tensor once, last layers first, buckets of similar size."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxcept.engines.horovod import BUCKETS, pack_buckets
from distxcept.model.xception import Xception


@pytest.mark.parametrize(
    ("sizes", "buckets", "expected"),
    [
        ([], 4, []),
        ([5], 4, [[0]]),
        ([1, 1, 1, 1], 2, [[3, 2], [1, 0]]),
        ([1, 1, 1, 1], 4, [[3], [2], [1], [0]]),
        ([1, 1], 4, [[1], [0]]),
        ([100, 1, 1, 1], 2, [[3, 2, 1], [0]]),
        ([1, 1, 1, 100], 2, [[3], [2, 1, 0]]),
        ([3, 3, 3], 1, [[2, 1, 0]]),
    ],
)
def test_by_hand(sizes: list[int], buckets: int, expected: list[list[int]]):
    assert pack_buckets(sizes, buckets) == expected


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=60), st.integers(1, 8))
def test_every_tensor_once_in_backward_order(sizes: list[int], buckets: int):
    packed = pack_buckets(sizes, buckets)
    assert [number for bucket in packed for number in bucket] == list(reversed(range(len(sizes))))
    assert all(packed) and len(packed) <= buckets
    bound = sum(sizes) / buckets + max(sizes)
    assert all(sum(sizes[number] for number in bucket) <= bound for bucket in packed)


def test_xception_fills_its_buckets_evenly():
    sizes = [_elements(p.shape) for p in Xception(classes=1000).parameters if not p.moving]
    filled = [sum(sizes[number] for number in bucket) for bucket in pack_buckets(sizes, BUCKETS)]
    assert len(filled) == BUCKETS
    assert max(filled) < 1.5 * sum(sizes) / BUCKETS


def _elements(shape: tuple[int, ...]) -> int:
    total = 1
    for side in shape:
        total *= side
    return total
