"""A Keras model as a pure function: what is refused and why, what it is called, and that it computes what Keras does."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from distxcept.config.schema import Config
from distxcept.errors import ConfigError
from distxcept.model.batchnorm import VirtualBatchNormalizer, normalize_by_moving
from distxcept.model.freezing import trained_norms, trained_parameters
from distxcept.model.keras_function import KerasNetwork
from distxcept.model.network import GIVEN, is_function

SIZE = 71


def network(model, precision: str = "float64") -> KerasNetwork:
    return KerasNetwork(model, image_size=SIZE, precision=precision)


def around(*inner, last=None) -> keras.Model:
    """A classifier with these layers in it."""
    x = inputs = keras.Input((SIZE, SIZE, 3))
    for layer in (layers.Conv2D(4, 3, strides=16), *inner, layers.GlobalAveragePooling2D()):
        x = layer(x)
    return keras.Model(inputs, (last or layers.Dense(3))(x))


class Counting(layers.Layer):
    def build(self, shape):
        self.seen = self.add_weight(shape=(), name="seen", trainable=False)

    def call(self, x):
        return x + self.seen


class WithoutConfig(layers.Layer):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def call(self, x):
        return x * self.factor


class WithLoss(layers.Layer):
    def call(self, x):
        self.add_loss(tf.reduce_sum(x))
        return x


class Subclassed(keras.Model):
    def call(self, x):
        return x


def normalized_twice() -> keras.Model:
    inputs, norm = keras.Input((SIZE, SIZE, 3)), layers.BatchNormalization(name="norm")
    x = norm(layers.Conv2D(3, 1)(norm(inputs)))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def tied() -> keras.Model:
    inner = layers.Dense(4, name="one")
    return around(inner, layers.TimeDistributed(inner, name="two"))


def two_outputs() -> keras.Model:
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.GlobalAveragePooling2D()(inputs)
    return keras.Model(inputs, [layers.Dense(3)(x), layers.Dense(2)(x)])


REFUSED = {
    "noise": (lambda: around(layers.GaussianNoise(0.1)), r"gaussian_noise \(GaussianNoise\) draws random"),
    "channels": (lambda: around(layers.SpatialDropout2D(0.1)), r"SpatialDropout2D.*noise_shape=\(None, 1, 1"),
    "flip": (lambda: around(layers.RandomFlip()), r"RandomFlip.*data\.augment"),
    "lambda": (lambda: around(layers.Lambda(lambda x: x)), r"lambda \(Lambda\) may do anything.*keras\.ops"),
    "state": (lambda: around(Counting()), r"counting \(Counting\) keeps state between batches \(seen\)"),
    "spectral": (lambda: around(layers.SpectralNormalization(layers.Conv2D(4, 1))), r"keeps state"),
    "recurrent": (lambda: around(layers.Reshape((25, 4)), layers.LSTM(4), layers.Reshape((1, 1, 4))), "LSTM"),
    "config": (lambda: around(WithoutConfig(2.0)), r"WithoutConfig\) cannot be made again from its config"),
    "loss": (lambda: around(WithLoss()), r"adds losses of its own"),
    "regularizer": (
        lambda: around(layers.Conv2D(3, 1, kernel_regularizer="l2")),
        r"conv2d_1 \(Conv2D\) has a regularizer.*weight_decay",
    ),
    "activity": (lambda: around(layers.Conv2D(3, 1, activity_regularizer="l2")), r"has a regularizer"),
    "constraint": (lambda: around(layers.Conv2D(3, 1, kernel_constraint="max_norm")), r"has a constraint"),
    "axis": (lambda: around(layers.BatchNormalization(axis=1)), r"normalises axis 1.*channels_last"),
    "renorm": (lambda: around(layers.BatchNormalization(renorm=True)), r"renorm"),
    "inner norm": (lambda: around(layers.TimeDistributed(layers.BatchNormalization())), r"keeps state"),
    "twice": (normalized_twice, r"norm \(BatchNormalization\) is used 2 times.*its own"),
    "tied": (tied, r"two/kernel is the same variable as one/kernel"),
    "whole batch": (lambda: around(layers.Dropout(0.5, noise_shape=(1, 1, 1, 4))), r"begin with None"),
    "all": (lambda: around(layers.Dropout(1.0)), r"drops everything"),
    "sigmoid": (lambda: around(last=layers.Dense(3, activation="sigmoid")), r"gives no logits.*Dense"),
    "softmax op": (lambda: around(last=lambda x: keras.ops.softmax(layers.Dense(3)(x))), r"gives no logits"),
    "outputs": (two_outputs, r"1 inputs and 2 outputs"),
    "image": (lambda: around(last=lambda x: layers.Reshape((1, 4))(x)), r"gives \(1, 4\).*one number a class"),
    "size": (
        lambda: keras.Sequential([keras.Input((64, 64, 3)), layers.Flatten(), layers.Dense(3)]),
        r"takes \(64, 64, 3\), but the images are \(71, 71, 3\)",
    ),
    "unbuilt": (lambda: keras.Sequential([layers.Flatten(), layers.Dense(3)]), r"no input shape yet.*Input"),
    "subclass": (Subclassed, r"is a Subclassed.*keras\.Model\(inputs"),
    "inner subclass": (lambda: around(Subclassed(name="inner")), r"layer inner \(Subclassed\)"),
    "file": (lambda: "model.keras", r"model is a str; give a Keras 3 model"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line_with_the_reason(case):
    build, reason = REFUSED[case]
    with pytest.raises(ConfigError, match=reason) as error:
        network(build())
    assert "\n" not in str(error.value)


def everything(last: str | None = "softmax") -> keras.Model:
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Normalization(mean=[0.1, 0.2, 0.3], variance=[1.0, 2.0, 3.0])(inputs)
    x = layers.ZeroPadding2D(1)(layers.Rescaling(2.0, offset=0.5)(x))
    x = y = layers.Conv2D(4, 3, strides=8, activation="silu", name="stem")(x)
    x = layers.BatchNormalization(scale=False, epsilon=1e-5)(x)
    x = layers.DepthwiseConv2D(3, padding="same")(x)
    x = layers.GroupNormalization(2)(x)
    x = layers.SeparableConv2D(4, 3, padding="same")(x)
    x = layers.LayerNormalization()(x)
    x = layers.Dropout(0.3)(x) + y
    x = layers.Concatenate()([x, layers.Multiply()([x, keras.ops.sigmoid(y)])])
    x = layers.MaxPooling2D()(layers.PReLU(shared_axes=[1, 2])(x))
    x = layers.Dense(6)(layers.Flatten()(x))
    x = layers.BatchNormalization(center=False)(x)
    x = layers.Activation("gelu")(x)
    return keras.Model(inputs, layers.Dense(3, activation=last)(x))


def randomized(model: keras.Model) -> keras.Model:
    random = np.random.default_rng(3)
    for weight in model.weights:
        if "kernel" in weight.name or weight.name in ("beta", "bias", "moving_mean"):
            weight.assign(random.normal(0.0, 0.3, weight.shape))
        else:
            weight.assign(random.uniform(0.5, 1.5, weight.shape))
    return model


def images(number: int = 4) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (number, SIZE, SIZE, 3), np.uint8)


def tensors(found: KerasNetwork, dtype=tf.float64) -> dict[str, tf.Tensor]:
    return {name: tf.constant(value, dtype) for name, value in found.values().items()}


@pytest.fixture
def in_float64():
    for name in ("float64", "float32"):
        keras.config.set_floatx(name)
        keras.config.set_dtype_policy(name)
        if name == "float64":
            yield


def test_it_computes_what_keras_does(in_float64):
    model = randomized(everything())
    before = model.get_weights()
    found = network(model)
    logits = found(tf.constant(images()), tensors(found), normalize_by_moving, dtype=tf.float64)
    expected = model(images() / 127.5 - 1.0, training=False).numpy()
    assert np.max(np.abs(tf.nn.softmax(logits).numpy() - expected)) < 1e-12
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


def test_a_float32_model_is_computed_as_the_config_says():
    found = network(randomized(everything()), "float64")
    logits = found(tf.constant(images()), tensors(found), normalize_by_moving, dtype=tf.float64)
    rough = network(found.source, "mixed_bfloat16")
    weights = tensors(rough, tf.float32)
    mixed = rough(tf.constant(images()), weights, normalize_by_moving, dtype=tf.bfloat16)
    assert mixed.dtype == tf.bfloat16
    again = tensors(found)
    exact = found(tf.constant(images()), again, normalize_by_moving, dtype=tf.float64)
    assert np.array_equal(exact, logits)
    assert np.max(np.abs(tf.cast(mixed, tf.float64) - logits)) < 0.1 * np.max(np.abs(logits))


def test_batch_norm_by_virtual_batches_and_dropout_by_its_keys(in_float64):
    found = network(randomized(everything()))
    weights, pixels = tensors(found), tf.constant(images())
    seeds = tf.constant([[7, 0], [7, 1]], tf.int64)

    def run(part: slice, numbers: slice) -> tuple[np.ndarray, dict[str, tf.Tensor]]:
        mask = tf.ones([numbers.stop - numbers.start, 2])
        normalizer = VirtualBatchNormalizer(mask, fused=0)
        noise = found.dropout_noise(seeds[numbers], part.stop - part.start)
        logits = found(pixels[part], weights, normalizer, dtype=tf.float64, dropout_noise=noise)
        return logits.numpy(), {
            name: tf.reduce_sum(tf.stack(sums[:2]), axis=1) for name, sums in normalizer.sums.items()
        }

    whole, sums = run(slice(0, 4), slice(0, 2))
    first, first_sums = run(slice(0, 2), slice(0, 1))
    second, second_sums = run(slice(2, 4), slice(1, 2))
    assert np.max(np.abs(np.concatenate([first, second]) - whole)) < 1e-12
    assert sums.keys() == {"batch_normalization", "batch_normalization_1"}
    for name, value in sums.items():
        assert np.max(np.abs(first_sums[name] + second_sums[name] - value)) < 1e-12 * np.max(np.abs(value))
    (noise,) = found.dropout_noise(seeds, 4)
    assert noise.shape == (4, 9, 9, 4)


def test_names_and_description_are_the_same_whenever_it_is_built():
    one, two = network(everything()), network(everything())
    assert [layer.name for layer in one.source.layers] != [layer.name for layer in two.source.layers]
    assert [p.name for p in one.parameters] == [p.name for p in two.parameters]
    assert one.identity == two.identity and one.files == two.files
    kinds = {p.name: p.kind for p in one.parameters}
    assert (
        kinds["stem/kernel"]
        == kinds["dense_1/kernel"]
        == kinds["separable_conv2d/pointwise_kernel"]
        == "kernel"
    )
    assert kinds["depthwise_conv2d/kernel"] == kinds["separable_conv2d/depthwise_kernel"] == "depthwise"
    assert kinds["p_re_lu/alpha"] == kinds["group_normalization/gamma"] == kinds["dense/bias"] == "other"
    ((name, text),) = one.files.items()
    assert name == f"model-{one.identity[GIVEN]}.json" and len(json.loads(text)["layers"]) > 20
    other = network(everything(last=None))
    assert other.identity[GIVEN] != one.identity[GIVEN]


def test_what_is_frozen_in_keras_is_frozen_here():
    plain, frozen = everything(), everything()
    frozen.get_layer("stem").trainable = False
    norm = next(layer for layer in frozen.layers if isinstance(layer, layers.BatchNormalization))
    norm.trainable = False
    found, before = network(frozen), network(plain)
    assert found.identity[GIVEN] == before.identity[GIVEN]
    assert found.identity["tensors trained"] != before.identity["tensors trained"]
    left_out = {p.name for p in trained_parameters(before, None)} - {
        p.name for p in trained_parameters(found, None)
    }
    assert left_out == {"stem/kernel", "stem/bias", "batch_normalization/beta"}
    assert trained_norms(found, None) == ["batch_normalization_1"]
    assert trained_norms(before, None) == ["batch_normalization", "batch_normalization_1"]


def transferred() -> keras.Model:
    base = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(4, 3, strides=16),
            layers.BatchNormalization(momentum=0.7),
        ],
        name="base",
    )
    inputs, drop = keras.Input((SIZE, SIZE, 3)), layers.Dropout(0.2)
    x = layers.GlobalAveragePooling2D()(drop(base(inputs)))
    return keras.Model(inputs, layers.Dense(3)(drop(x)))


def test_inner_models_and_a_dropout_that_is_used_twice():
    found = network(transferred())
    assert [p.name for p in found.parameters][:2] == ["base/conv2d/kernel", "base/conv2d/bias"]
    assert found.momenta == {"base/batch_normalization": 0.7}
    assert trained_norms(found, None) == ["base/batch_normalization"]
    assert found.identity == network(transferred()).identity
    weights = tensors(found)
    logits = found(tf.constant(images()), weights, normalize_by_moving, dtype=tf.float64).numpy()
    assert np.max(np.abs(logits - found.source(images() / 127.5 - 1.0).numpy())) < 1e-5
    assert not np.array_equal(logits, logits.astype(np.float32))  # computed in float64, inside too
    one, two = found.dropout_noise(tf.constant([[7, 0]], tf.int64), 2)
    assert one.shape == (2, 5, 5, 4) and two.shape == (2, 4)
    assert not np.array_equal(one[0, 0, 0], two[0])


@pytest.mark.parametrize(
    "last", [layers.Dense(3), layers.Dense(3, activation="softmax")], ids=["logits", "softmax"]
)
def test_a_list_of_layers(last):
    """keras.Sequential as the whole model, which Keras itself gives no `input` before it is called."""
    listed = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(4, 3, strides=16),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.2),
            last,
        ]
    )
    found = network(listed)
    assert found.classes == 3 and trained_norms(found, None) == ["batch_normalization"]
    logits = found(tf.constant(images()), tensors(found), normalize_by_moving, dtype=tf.float64).numpy()
    answer = listed(images() / 127.5 - 1.0).numpy()
    expected = tf.nn.softmax(logits).numpy() if last.activation is keras.activations.softmax else logits
    assert np.max(np.abs(expected - answer)) < 1e-5


def test_what_a_normalization_has_learned_is_part_of_the_model():
    def adapted(scale: float) -> keras.Model:
        layer = layers.Normalization()
        layer.adapt(images().astype(np.float32) * scale)
        inputs = keras.Input((SIZE, SIZE, 3))
        return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling2D()(layer(inputs))))

    one, same, other = (network(adapted(scale), "float32") for scale in (1.0, 1.0, 2.0))
    assert one.identity == same.identity != other.identity
    logits = one(tf.constant(images()), tensors(one, tf.float32), normalize_by_moving, dtype=tf.float32)
    expected = one.source(images() / 127.5 - 1.0).numpy()
    assert np.max(np.abs(logits.numpy() - expected)) < 1e-5


def test_a_compiled_model_is_a_model_too_and_gets_its_values_back():
    model = around(layers.BatchNormalization())
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    found = network(model)
    values = {name: value + 1.0 for name, value in found.values().items()}
    assert found.put(values) is model
    assert all(np.array_equal(found.values()[name], value) for name, value in values.items())


def test_a_function_builds_it_from_the_seed_of_the_run():
    def config(seed: int) -> Config:
        data = {"train": {"kind": "synthetic", "samples": 4, "classes": 3}}
        return Config.model_validate({"data": data, "run": {"seed": seed}, "model": {"image_size": SIZE}})

    one, same, other = (KerasNetwork.of(around, config(seed)).values()["conv2d/kernel"] for seed in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    assert is_function(around) and not is_function(around()) and not is_function("model.keras")
