"""The loss of each sample against Keras' losses."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from distxcept.training.objective import Objective

CLASSES = 7
RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(scale=4.0, size=(40, CLASSES))
LABELS = RANDOM.integers(0, CLASSES, 40).astype(np.int32)
CLASS_WEIGHTS = RANDOM.uniform(0.2, 3.0, CLASSES)


def losses(objective: Objective, logits: tf.Tensor, labels) -> tf.Tensor:
    return objective.losses(logits, objective.targets(tf.constant(labels), logits.dtype))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_are_those_of_keras(smoothing: float, weighted: bool):
    keras_loss = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=smoothing, reduction="none", dtype="float64"
    )
    expected = np.asarray(keras_loss(np.eye(CLASSES)[LABELS], LOGITS))
    if weighted:
        expected = expected * CLASS_WEIGHTS[LABELS]
    objective = Objective(CLASSES, smoothing, CLASS_WEIGHTS if weighted else None)
    found = losses(objective, tf.constant(LOGITS), LABELS)
    assert np.allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_gradient_of_the_mean_is_that_of_keras_with_sample_weights():
    keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
    logits = tf.constant(LOGITS)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(logits)
        theirs = keras_loss(LABELS, logits, sample_weight=CLASS_WEIGHTS[LABELS])
        ours = tf.reduce_mean(losses(Objective(CLASSES, class_weights=CLASS_WEIGHTS), logits, LABELS))
    assert np.allclose(tape.gradient(ours, logits), tape.gradient(theirs, logits), rtol=1e-12, atol=1e-15)


def test_large_logits_stay_finite():
    logits = tf.constant([[1000.0, -1000.0]])
    assert np.allclose(losses(Objective(2), logits, [1]), 2000.0)
