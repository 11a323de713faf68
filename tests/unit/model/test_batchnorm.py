"""Batch norm by virtual batch: fused against masked, masked against the batch without the masked samples, and Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from distxcept.model.batchnorm import VirtualBatchNormalizer, normalize_by_moving
from distxcept.model.layout import Parameter
from distxcept.model.packs import make_pack

CHANNELS = 6


def weights_of(dtype=tf.float32, seed: int = 0) -> dict[str, tf.Tensor]:
    random = np.random.default_rng(seed)
    draw = {
        "gamma": random.uniform(0.5, 1.5, CHANNELS),
        "beta": random.normal(size=CHANNELS),
        "moving_mean": random.normal(size=CHANNELS),
        "moving_variance": random.uniform(0.5, 1.5, CHANNELS),
    }
    return {f"bn/{name}": tf.constant(value, dtype) for name, value in draw.items()}


def exact_sums(normalizer: VirtualBatchNormalizer) -> tf.Tensor:
    """Σ count·mean and Σ count·variance, as the moving statistics get them."""
    kinds = ("moving_mean", "moving_variance")
    pack = make_pack("moving", [Parameter(f"bn/{kind}", (CHANNELS,), kind) for kind in kinds])
    return tf.stack(list(pack.split(normalizer.moving_sums(pack)).values()))


def run(mask, x, *, fused: bool | int, dtype=tf.float32, upstream=None) -> dict[str, np.ndarray]:
    """Outputs, sums and gradients of a weighted sum of the outputs of real samples. `fused`: all, none, or so many
    virtual batches."""
    mask = tf.constant(mask, tf.float32)
    weights = weights_of(dtype)
    x = tf.constant(x, dtype)
    flat = tf.reshape(mask, [-1, 1, 1, 1])
    if upstream is None:
        upstream = np.random.default_rng(5).normal(size=x.shape)
    normalizer = VirtualBatchNormalizer(mask, fused=len(mask) if fused is True else int(fused))
    with tf.GradientTape() as tape:
        tape.watch([x, weights])
        y = normalizer("bn", x, weights)
        target = tf.reduce_sum(y * tf.constant(upstream, dtype) * tf.cast(flat, dtype))
    gradients = tape.gradient(target, {"x": x, "gamma": weights["bn/gamma"], "beta": weights["bn/beta"]})
    values = {"y": y, "sums": exact_sums(normalizer), **gradients}
    return {name: value.numpy() for name, value in values.items()}


def samples(number: int, size: int = 5, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(1.0, 2.0, (number, size, size, CHANNELS))


def assert_close(found, expected, tolerance: float) -> None:
    for name, value in expected.items():
        scale = max(np.max(np.abs(value)), 1e-6)
        assert np.max(np.abs(found[name] - value)) / scale < tolerance, name


@pytest.mark.parametrize(
    ("groups", "size", "pixels"), [(1, 4, 5), (3, 4, 5), (4, 1, 3), (2, 2, 1), (1, 16, 9)]
)
def test_fused_equals_masked(groups: int, size: int, pixels: int):
    x = samples(groups * size, pixels)
    mask = np.ones((groups, size))
    exact = run(mask, x, fused=False, dtype=tf.float64)
    assert_close(run(mask, x, fused=True), exact, 5e-6)
    assert_close(run(mask, x, fused=False), exact, 5e-6)


def test_padding_in_the_last_virtual_batch_leaves_the_others_to_the_fast_kernel():
    """Each virtual batch is computed as it would be alone, so it does not matter which of them share a micro batch."""
    x = samples(12)
    mask = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0]])
    upstream = np.random.default_rng(5).normal(size=x.shape)
    found = run(mask, x, fused=2, upstream=upstream)
    first = run(mask[:2], x[:8], fused=True, upstream=upstream[:8])
    last = run(mask[2:], x[8:], fused=False, upstream=upstream[8:])
    assert np.array_equal(found["y"], np.concatenate([first["y"], last["y"]]))
    assert np.array_equal(found["x"], np.concatenate([first["x"], last["x"]]))
    exact = run(mask, x, fused=False, dtype=tf.float64, upstream=upstream)
    assert_close(
        {name: found[name] for name in ("sums", "gamma", "beta")},
        {n: exact[n] for n in ("sums", "gamma", "beta")},
        5e-6,
    )


def test_one_single_element_has_no_variance():
    x = samples(2, 1)
    for fused in (True, False):
        found = run(np.ones((2, 1)), x, fused=fused)
        assert np.allclose(found["y"], weights_of()["bn/beta"], atol=1e-6)
        assert np.allclose(found["sums"], [x.sum(axis=(0, 1, 2)), np.zeros(CHANNELS)], atol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
def test_statistics_are_those_of_each_virtual_batch(fused: bool):
    x = samples(6)
    grouped = x.reshape(2, 3, *x.shape[1:])
    found = run(np.ones((2, 3)), x, fused=fused)
    expected = [3 * grouped.mean(axis=(1, 2, 3)).sum(axis=0), 3 * grouped.var(axis=(1, 2, 3)).sum(axis=0)]
    assert np.allclose(found["sums"], expected, rtol=1e-5)
    alone = [run(np.ones((1, 3)), part, fused=fused)["y"] for part in grouped]
    assert np.allclose(found["y"], np.concatenate(alone), atol=1e-5)


def test_masked_samples_change_nothing():
    """A virtual batch of 4 with 2 unreadable images, one with none left, one whole."""
    x = samples(12)
    mask = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    real = np.flatnonzero(mask)
    upstream = np.random.default_rng(5).normal(size=x.shape)
    found = run(mask, x, fused=False, dtype=tf.float64, upstream=upstream)
    pair = run(np.ones((1, 2)), x[[0, 2]], fused=False, dtype=tf.float64, upstream=upstream[[0, 2]])
    whole = run(np.ones((1, 4)), x[8:], fused=False, dtype=tf.float64, upstream=upstream[8:])
    expected = {name: pair[name] + whole[name] for name in ("sums", "gamma", "beta")}
    expected |= {name: np.concatenate([pair[name], whole[name]]) for name in ("y", "x")}
    assert all(np.all(np.isfinite(value)) for value in found.values())
    assert not np.any(np.delete(found["x"], real, axis=0))
    assert_close({**found, "y": found["y"][real], "x": found["x"][real]}, expected, 1e-12)


def test_masked_samples_may_hold_anything():
    x = samples(4)
    mask = [[1, 1, 1, 0]]
    found = run(mask, x, fused=False, dtype=tf.float64)
    x[3] = 1e6
    other = run(mask, x, fused=False, dtype=tf.float64)
    assert_close({**other, "y": other["y"][:3]}, {**found, "y": found["y"][:3]}, 1e-12)


def test_masked_moments_and_outputs_are_those_of_keras():
    x = samples(5)
    mask = np.array([[1, 1, 0, 1, 0]])
    layer = keras.layers.BatchNormalization(momentum=0.75, dtype="float64")
    layer.build(x.shape)
    weights = weights_of(tf.float64)
    layer.set_weights([w.numpy() for w in weights.values()])
    pixel_mask = np.broadcast_to(mask.reshape(5, 1, 1), x.shape[:3]).astype(bool)
    y = np.asarray(layer(x, training=True, mask=tf.constant(pixel_mask)))
    found = run(mask, x, fused=False, dtype=tf.float64)
    assert np.allclose(found["y"], y, atol=1e-12)
    mean, variance = found["sums"] / 3
    assert np.allclose(
        0.75 * weights["bn/moving_mean"] + 0.25 * mean, np.asarray(layer.moving_mean), atol=1e-12
    )
    assert np.allclose(
        0.75 * weights["bn/moving_variance"] + 0.25 * variance, np.asarray(layer.moving_variance), atol=1e-12
    )


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_inference_and_frozen_layers_use_the_moving_statistics(dtype):
    x = tf.constant(samples(3), dtype)
    weights = weights_of(dtype)
    layer = keras.layers.BatchNormalization(dtype=dtype.name)
    layer.build(x.shape)
    layer.set_weights([w.numpy() for w in weights.values()])
    expected = np.asarray(layer(x, training=False))
    tolerance = 1e-12 if dtype == tf.float64 else 1e-5
    assert np.allclose(normalize_by_moving("bn", x, weights), expected, atol=tolerance)
    normalizer = VirtualBatchNormalizer(tf.ones([1, 3]), fused=0, frozen={"bn"})
    assert np.array_equal(normalizer("bn", x, weights), normalize_by_moving("bn", x, weights))
    assert not normalizer.sums, "a frozen layer has no statistics to gather"


@pytest.mark.parametrize("half", [tf.float16, tf.bfloat16])
@pytest.mark.parametrize("fused", [True, False])
def test_half_precision_keeps_statistics_in_single(half, fused: bool):
    x = samples(8, 9) + 30.0
    weights = weights_of()
    normalizer = VirtualBatchNormalizer(tf.ones([2, 4]), fused=2 * fused)
    rounded = tf.cast(x, half)
    y = normalizer("bn", rounded, weights)
    assert y.dtype == half and exact_sums(normalizer).dtype == tf.float32
    exact = run(np.ones((2, 4)), tf.cast(rounded, tf.float64).numpy(), fused=False, dtype=tf.float64)
    assert np.allclose(exact_sums(normalizer), exact["sums"], rtol=1e-4)
