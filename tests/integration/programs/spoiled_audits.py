"""Audits of an update with a deliberate mistake in it; JSON on stdout: for each mistake the problems that were found."""

import json
import os
from collections.abc import Callable
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from distxcept.doctor.audit import audit_update
from distxcept.training import update
from distxcept.training.accumulate import Accumulator

SMALL = {"model": {"width": 0.0625, "middle_blocks": 0}}
real_forward = Accumulator.forward


def on_cpu_only(accumulator, weights, drawn, normalizer, *, remat):
    """An operation that TensorFlow has for CPUs only."""
    loss, logits = real_forward(accumulator, weights, drawn, normalizer, remat=remat)
    letters = tf.strings.length(tf.strings.as_string(tf.stop_gradient(loss)))
    return loss + tf.cast(letters, loss.dtype), logits


def on_the_host(accumulator, weights, drawn, normalizer, *, remat):
    """A part of the model that somebody has put on the CPU."""
    loss, logits = real_forward(accumulator, weights, drawn, normalizer, remat=remat)
    with tf.device("CPU:0"):
        return tf.exp(loss), logits


def untied(variable):
    """Nothing ties the weights to the device of their replica."""
    return tf.convert_to_tensor(variable)


MISTAKES: dict[str, Callable] = {
    "on_cpu_only": lambda: mock.patch.object(Accumulator, "forward", on_cpu_only),
    "on_the_host": lambda: mock.patch.object(Accumulator, "forward", on_the_host),
    "untied": lambda: mock.patch.object(update, "tied_to_device", untied),
}


def problems(mistake: Callable) -> list[str]:
    with mistake():
        return audit_update(2, SMALL, keras=False).problems


print(json.dumps({name: problems(mistake) for name, mistake in MISTAKES.items()}))
