"""Update rules against Keras' optimizers, step by step in float64; where ours differ by design, against the formula."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from distxcept.config.schema import OptimizerSection
from distxcept.model.layout import Parameter
from distxcept.model.packs import make_pack
from distxcept.training.optimizer import Optimizer

# Keras rounds most of its constants to float32, so those given to both are exact there.
RATES = [2.0**-5, 2.0**-5, 2.0**-6, 2.0**-3, 2.0**-4]
DECAY = 2.0**-4


def gradients(seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.normal(scale=10.0 ** random.integers(-3, 2), size=(4, 3)) for _ in RATES]


def run_ours(section: dict, *, decays: bool = True, weight: np.ndarray | None = None) -> list[np.ndarray]:
    optimizer = Optimizer(OptimizerSection(**section))
    # Another tensor stands beside it in the pack, and must not matter.
    parameters = [Parameter("ours", (4, 3), "kernel"), Parameter("other", (16,), "kernel")]
    pack = make_pack("pack", parameters, decays=decays)
    other = np.random.default_rng(2).normal(size=16)

    def packed(value: np.ndarray) -> tf.Tensor:
        return tf.constant(pack.to_numpy({"ours": value, "other": other}, np.float64))

    weight = packed(start() if weight is None else weight)
    slots = {name: tf.zeros_like(weight) for name in optimizer.config.slot_names}
    path = []
    for number, (rate, gradient) in enumerate(zip(RATES, gradients(), strict=True), start=1):
        weight, slots = optimizer.step(
            pack,
            weight,
            packed(gradient),
            slots,
            rate=tf.constant(rate, tf.float64),
            time=tf.constant(float(number), tf.float64),
        )
        assert set(slots) == set(optimizer.config.slot_names)
        assert not np.any(weight[sum(pack.sizes) :]), "the padding stays zero"
        path.append(pack.from_numpy(weight.numpy())["ours"])
    return path


def run_keras(optimizer: keras.Optimizer, *, coupled_decay: float = 0.0) -> list[np.ndarray]:
    variable = keras.Variable(start(), dtype="float64")
    path = []
    for rate, gradient in zip(RATES, gradients(), strict=True):
        optimizer.learning_rate = rate
        optimizer.apply([tf.constant(gradient) + coupled_decay * variable.value], [variable])
        path.append(np.asarray(variable))
    return path


def start() -> np.ndarray:
    return np.random.default_rng(9).normal(size=(4, 3))


def assert_same_path(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for step, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert np.max(np.abs(ours - theirs)) < 1e-12 * max(1.0, np.max(np.abs(theirs))), f"step {step}"


KERAS = {
    "sgd": (dict(name="sgd", momentum=0.0), lambda: keras.optimizers.SGD()),
    "sgd momentum": (dict(name="sgd", momentum=0.875), lambda: keras.optimizers.SGD(momentum=0.875)),
    "sgd nesterov": (
        dict(name="sgd", momentum=0.875, nesterov=True),
        lambda: keras.optimizers.SGD(momentum=0.875, nesterov=True),
    ),
    "rmsprop": (
        dict(name="rmsprop", momentum=0.0, rho=0.75, epsilon=1e-3),
        lambda: keras.optimizers.RMSprop(rho=0.75, epsilon=1e-3),
    ),
    "rmsprop momentum": (
        dict(name="rmsprop", momentum=0.875, rho=0.75),
        lambda: keras.optimizers.RMSprop(rho=0.75, momentum=0.875),
    ),
    "adam": (
        dict(name="adam", betas=(0.75, 0.96875)),
        lambda: keras.optimizers.Adam(beta_1=0.75, beta_2=0.96875),
    ),
    "adam epsilon": (
        dict(name="adam", betas=(0.75, 0.96875), epsilon=0.125),
        lambda: keras.optimizers.Adam(beta_1=0.75, beta_2=0.96875, epsilon=0.125),
    ),
    "adamw": (
        dict(name="adamw", betas=(0.75, 0.96875)),
        lambda: keras.optimizers.AdamW(beta_1=0.75, beta_2=0.96875, weight_decay=0.0),
    ),
    "lamb": (
        dict(name="lamb", betas=(0.75, 0.96875)),
        lambda: keras.optimizers.Lamb(beta_1=0.75, beta_2=0.96875),
    ),
}


@pytest.mark.parametrize("case", KERAS)
def test_steps_are_those_of_keras(case: str):
    section, make = KERAS[case]
    assert_same_path(run_ours(section), run_keras(make()))


def test_adamw_decays_as_keras_does():
    section = dict(name="adamw", betas=(0.75, 0.96875), weight_decay=DECAY)
    theirs = keras.optimizers.AdamW(beta_1=0.75, beta_2=0.96875, weight_decay=DECAY)
    assert_same_path(run_ours(section), run_keras(theirs))


@pytest.mark.parametrize("case", [case for case in KERAS if case.split()[0] in ("sgd", "rmsprop", "adam")])
def test_decay_is_added_to_the_gradient(case: str):
    """By design: Keras decouples the decay of every optimizer; the papers' recipes for these mean an L2 penalty."""
    section, make = KERAS[case]
    found = run_ours({**section, "weight_decay": DECAY})
    assert_same_path(found, run_keras(make(), coupled_decay=DECAY))
    without = run_ours(section)
    assert np.max(np.abs(found[-1] - without[-1])) > 1e-6


def test_lamb_decays_inside_the_trust_ratio():
    """By design: the LAMB paper scales direction and decay together; Keras decays the weight beforehand."""
    beta1, beta2, epsilon = 0.9, 0.999, 1e-7
    weight, first, second = start(), np.zeros((4, 3)), np.zeros((4, 3))
    expected = []
    for number, (rate, gradient) in enumerate(zip(RATES, gradients(), strict=True), start=1):
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        direction = first / (1 - beta1**number) / (np.sqrt(second / (1 - beta2**number)) + epsilon)
        direction = direction + DECAY * weight
        weight = weight - rate * np.linalg.norm(weight) / np.linalg.norm(direction) * direction
        expected.append(weight)
    assert_same_path(run_ours(dict(name="lamb", weight_decay=DECAY)), expected)


@pytest.mark.parametrize("name", ["sgd", "rmsprop", "adam", "adamw", "lamb"])
def test_biases_and_batch_norms_do_not_decay(name: str):
    found = run_ours(dict(name=name, weight_decay=0.5), decays=False)
    assert_same_path(found, run_ours(dict(name=name, weight_decay=0.0), decays=False))


def test_lamb_spares_biases_its_trust_ratio():
    """By design: without ratio and decay LAMB is Adam with its epsilon after the correction."""
    found = run_ours(dict(name="lamb", epsilon=1e-12), decays=False)
    assert np.max(np.abs(found[-1] - run_ours(dict(name="adam", epsilon=1e-12))[-1])) < 1e-8


def test_lamb_moves_weights_that_are_zero():
    path = run_ours(dict(name="lamb"), weight=np.zeros((4, 3)))
    assert np.all(np.isfinite(path[-1])) and np.any(path[0])


@pytest.mark.parametrize(
    ("section", "slots"),
    [
        (dict(name="sgd", momentum=0.0), ()),
        (dict(name="sgd"), ("velocity",)),
        (dict(name="rmsprop", momentum=0.0), ("mean_square",)),
        (dict(name="rmsprop"), ("mean_square", "velocity")),
        (dict(name="adam"), ("first_moment", "second_moment")),
        (dict(name="lamb"), ("first_moment", "second_moment")),
    ],
)
def test_slots_are_named_in_snapshots(section: dict, slots: tuple[str, ...]):
    assert OptimizerSection(**section).slot_names == slots
