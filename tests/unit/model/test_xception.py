"""The network is the paper's, in numbers and in what it computes: compared with Keras' own."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from distxcept.model.batchnorm import VirtualBatchNormalizer, normalize_by_moving
from distxcept.model.layout import HEAD
from distxcept.model.xception import Xception, draw_noise, dropout

PAPER = Xception(classes=1000)
SMALL = Xception(classes=5, width=0.0625, middle_blocks=1)


@pytest.fixture(scope="module")
def keras_features(keras_xception: keras.Model) -> keras.Model:
    """Keras' network up to the classifier, for images of any size."""
    model = keras.applications.Xception(
        weights=None, include_top=False, pooling="avg", input_shape=(None, None, 3)
    )
    model.set_weights(keras_xception.get_weights()[:-2])
    return model


def images_of(number: int, size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, (number, size, size, 3), dtype=np.uint8)


def keras_logits(features: keras.Model, images: np.ndarray, weights, **call) -> np.ndarray:
    inputs = keras.applications.xception.preprocess_input(images.astype(np.float32))
    pooled = np.asarray(features(inputs, **call))
    return pooled @ weights[f"{HEAD}/kernel"] + weights[f"{HEAD}/bias"]


def relative(found, expected) -> float:
    """Largest difference in parts of the largest value."""
    return float(np.max(np.abs(np.asarray(found) - expected)) / np.max(np.abs(expected)))


def test_size_of_the_paper():
    layers = [c for block in PAPER.blocks for c in block.convolutions]
    assert len(layers) == 36
    assert len(PAPER.blocks) == 14
    assert sum(int(np.prod(p.shape)) for p in PAPER.parameters) == 22_910_480
    assert sum(int(np.prod(p.shape)) for p in PAPER.parameters if not p.moving) == 22_855_952


def test_parameters_are_those_of_keras(expected_weights):
    assert {p.name: p.shape for p in PAPER.parameters} == {
        name: value.shape for name, value in expected_weights.items()
    }


@pytest.mark.parametrize(("number", "size"), [(2, 71), (2, 100), (1, 299)])
def test_inference_gives_the_outputs_of_keras(number: int, size: int, keras_features, expected_weights):
    images = images_of(number, size)
    expected = keras_logits(keras_features, images, expected_weights, training=False)
    found = PAPER(tf.constant(images), expected_weights, normalize_by_moving, dtype=tf.float32)
    assert np.std(expected, axis=1).min() > 0.02 * np.abs(expected).max(), "outputs too dull to compare"
    assert relative(found, expected) < 5e-6


def test_training_mode_gives_outputs_and_moving_statistics_of_keras(keras_features, expected_weights):
    """Keras keeps the biased variance and a momentum of 0.99; the fused kernel hands out the unbiased one."""
    images = images_of(4, 71)
    before = keras_features.get_weights()
    expected = keras_logits(keras_features, images, expected_weights, training=True)
    after = {
        layer.name: (np.asarray(layer.moving_mean), np.asarray(layer.moving_variance))
        for layer in keras_features.layers
        if isinstance(layer, keras.layers.BatchNormalization) and layer.name.startswith("block")
    }
    keras_features.set_weights(before)
    normalizer = VirtualBatchNormalizer(tf.ones([1, 4]), fused=1)
    found = PAPER(tf.constant(images), expected_weights, normalizer, dtype=tf.float32)
    assert relative(found, expected) < 1e-4
    assert len(normalizer.sums) == 40 and len(after) == 36
    for norm, (mean, variance) in after.items():
        sums = normalizer.sums[norm]
        batch_mean, batch_variance = (
            np.asarray(value) * factor / 4 for value, factor in zip(sums[:2], sums.factors, strict=True)
        )
        old_mean, old_variance = (expected_weights[f"{norm}/moving_{kind}"] for kind in ("mean", "variance"))
        # The step itself is compared, not the sum with the old value that would hide it.
        assert relative(0.01 * (batch_mean - old_mean), mean - old_mean) < 1e-3, norm
        assert relative(0.01 * (batch_variance - old_variance), variance - old_variance) < 1e-3, norm


@pytest.mark.parametrize("width", [0.0625, 0.25, 0.5, 1.5])
def test_width_scales_channels_in_multiples_of_eight(width: int):
    model = Xception(classes=3, width=width)
    for ours, paper in zip(model.blocks, PAPER.blocks, strict=True):
        for small, full in zip(ours.convolutions, paper.convolutions, strict=True):
            assert small.outputs % 8 == 0 and abs(small.outputs - full.outputs * width) <= 8
            assert small.outputs >= 8
    assert model.features == model.blocks[-1].convolutions[-1].outputs


def dropped(x: tf.Tensor, rate: float, seeds: tf.Tensor) -> np.ndarray:
    return dropout(x, rate, draw_noise(seeds, *x.shape)).numpy()


def test_dropout_depends_on_seed_and_place_alone():
    x = tf.constant(np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32))
    seeds = tf.constant([[7, 0], [7, 1], [7, 2]], tf.int64)
    whole = dropped(x, 0.5, seeds)
    parts = [dropped(x[2 * j : 2 * j + 2], 0.5, seeds[j : j + 1]) for j in (2, 1, 0)]
    assert np.array_equal(whole, np.concatenate(parts[::-1]))
    masks = [(whole[2 * j : 2 * j + 2] != 0) for j in range(3)]
    assert not np.array_equal(masks[0], masks[1]) and not np.array_equal(masks[1], masks[2])
    other = dropped(x[:2], 0.5, tf.constant([[8, 0]], tf.int64))
    assert not np.array_equal(other != 0, masks[0])
    in_double = dropped(tf.cast(x, tf.float64), 0.5, seeds)
    assert np.array_equal(in_double != 0, whole != 0)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean(rate: float):
    y = dropped(tf.ones([100, 1000]), rate, tf.constant([[1, 1]], tf.int64))
    kept = y != 0
    assert np.allclose(y[kept], 1 / (1 - rate))
    assert abs(kept.mean() - (1 - rate)) < 5 * np.sqrt(rate * (1 - rate) / y.size)


def test_dropout_is_used_in_training_only():
    model = Xception(classes=5, width=0.0625, middle_blocks=0, dropout=0.5)
    weights = {
        p.name: tf.constant(np.random.default_rng(1).normal(size=p.shape), tf.float32)
        for p in model.parameters
    }
    weights |= {p.name: tf.ones(p.shape) for p in model.parameters if p.kind in ("gamma", "moving_variance")}
    images = tf.constant(images_of(2, 71))

    def logits(seeds):
        noise = None if seeds is None else model.dropout_noise(seeds, 2)
        return model(images, weights, normalize_by_moving, dtype=tf.float32, dropout_noise=noise).numpy()

    seed = tf.constant([[3, 4]], tf.int64)
    assert np.array_equal(logits(seed), logits(seed))
    assert not np.allclose(logits(seed), logits(None))
    assert not np.allclose(logits(seed), logits(seed + 1))
