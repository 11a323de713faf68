"""Flat packs: every tensor once, its values untouched, kernels in the order in which their gradients are ready."""

from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from distxcept.model.layout import Layout, Parameter
from distxcept.model.packs import ALIGNMENT, LEAST_PACKS, make_pack, pack_trained

MAX_BYTES = 32 * 2**20
SHAPES = st.lists(st.lists(st.integers(1, 40), max_size=3).map(tuple), min_size=1, max_size=12)


def parameters(shapes: list[tuple[int, ...]], kind: str = "kernel") -> list[Parameter]:
    return [Parameter(f"{kind}{number}", shape, kind) for number, shape in enumerate(shapes)]


@settings(deadline=None)
@given(SHAPES)
def test_what_is_joined_is_split_again(shapes: list[tuple[int, ...]]):
    pack = make_pack("any", parameters(shapes))
    random = np.random.default_rng(0)
    values = {p.name: random.normal(size=p.shape) for p in pack.parameters}
    vector = pack.to_numpy(values, np.float64)
    assert vector.shape == (pack.elements,) and pack.elements % ALIGNMENT == 0
    assert np.array_equal(pack.join({name: tf.constant(value) for name, value in values.items()}), vector)
    for found in (pack.from_numpy(vector), pack.split(tf.constant(vector))):
        assert found.keys() == values.keys()
        assert all(np.array_equal(found[name], values[name]) for name in values)


def test_what_is_left_over_is_zero():
    """Slots and averages of the padding stay zero too, and no norm sees it."""
    pack = make_pack("any", parameters([(3,), (5,)]))
    ones = {p.name: np.ones(p.shape) for p in pack.parameters}
    assert pack.padding == 8 and pack.to_numpy(ones, np.float64).sum() == 8
    assert float(tf.reduce_sum(pack.join({n: tf.constant(v) for n, v in ones.items()}))) == 8


def test_large_tensors_are_cut_without_a_copy():
    """They share the memory of the vector; only the small ones of odd sizes do not."""
    pack = make_pack("any", parameters([(7,), (64, 64), (3, 3), (1024,)]))
    variable = tf.Variable(np.zeros(pack.elements, np.float32))

    @tf.function(autograph=False)
    def run() -> list[tf.Tensor]:
        vector = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tf.float32)
        return [vector, *pack.split(vector).values()]

    def address(tensor: tf.Tensor) -> int:
        return np.asarray(memoryview(tensor)).__array_interface__["data"][0]

    vector, *parts = run()
    start = address(vector)
    assert [address(part) - start for part in parts[:2]] == [0, 4 * 64 * 64]
    assert [p.name for p in pack.parameters] == ["kernel1", "kernel3", "kernel0", "kernel2"]


def test_packs_of_xception():
    trained = [p for p in Layout(classes=1000).parameters if not p.moving]
    packs = pack_trained(trained, number_bytes=4, max_bytes=MAX_BYTES)
    names = [p.name for pack in packs for p in pack.parameters]
    assert sorted(names) == sorted(p.name for p in trained)
    *kernels, others = packs
    assert len(kernels) >= LEAST_PACKS and all(pack.decays for pack in kernels) and not others.decays
    assert all(4 * pack.elements <= MAX_BYTES for pack in packs)
    # each pack of kernels is ready before the next one
    place = {p.name: number for number, p in enumerate(trained)}
    bounds = [
        (min(places), max(places)) for places in ([place[p.name] for p in k.parameters] for k in kernels)
    ]
    assert all(later[1] < earlier[0] for earlier, later in pairwise(bounds))


@given(st.lists(st.integers(1, 5 * 2**20), min_size=1, max_size=30), st.sampled_from([4, 8]))
def test_a_pack_is_small_unless_one_kernel_is_large(sizes: list[int], number_bytes: int):
    trained = parameters([(size,) for size in sizes])
    packs = pack_trained(trained, number_bytes=number_bytes, max_bytes=MAX_BYTES)
    assert sorted(p.name for pack in packs for p in pack.parameters) == sorted(p.name for p in trained)
    for pack in packs:
        assert len(pack.parameters) == 1 or sum(pack.sizes) * number_bytes <= MAX_BYTES


@pytest.mark.parametrize("trained", [[], parameters([(4,)], "bias")])
def test_nothing_that_decays(trained: list[Parameter]):
    assert [pack.name for pack in pack_trained(trained, number_bytes=4, max_bytes=MAX_BYTES)] == [
        "others"
    ] * bool(trained)
