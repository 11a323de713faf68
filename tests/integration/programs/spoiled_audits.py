"""Audits of an update with a deliberate mistake in it; JSON on stdout: for each mistake the problems that were found."""

import json
import os
from collections.abc import Callable
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from distxcept.doctor.audit import audit_update
from distxcept.model import xception
from distxcept.model.packs import make_pack
from distxcept.training import state, update
from distxcept.training.accumulate import Accumulator

SMALL = {"model": {"width": 0.0625, "middle_blocks": 0, "dropout": 0.5}}
WIDE = {"model": {"middle_blocks": 1}}
real_forward, real_block = Accumulator.forward, Accumulator.block


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


def in_host_memory(seeds, samples, *features):
    """An operation on the device, whose kernel reads from the memory of the host."""
    shape = [samples // seeds.shape[0], *features]
    return tf.concat(
        [tf.random.stateless_uniform(shape, seed, alg="philox") for seed in tf.unstack(seeds)], 0
    )


def held_back(accumulator, *arguments, early=False, **options):
    """No pack of gradients leaves before all are computed."""
    return real_block(accumulator, *arguments, early=False, **options)


def one_large_pack(trained, **options):
    """All weights travel at once."""
    return [make_pack("everything", trained)]


MISTAKES: dict[str, tuple[dict, Callable]] = {
    "on_cpu_only": (SMALL, lambda: mock.patch.object(Accumulator, "forward", on_cpu_only)),
    "on_the_host": (SMALL, lambda: mock.patch.object(Accumulator, "forward", on_the_host)),
    "untied": (SMALL, lambda: mock.patch.object(update, "tied_to_device", untied)),
    "in_host_memory": (SMALL, lambda: mock.patch.object(xception, "draw_noise", in_host_memory)),
    "held_back": (SMALL, lambda: mock.patch.object(Accumulator, "block", held_back)),
    "one_large_pack": (WIDE, lambda: mock.patch.object(state, "pack_trained", one_large_pack)),
}


def problems(overrides: dict, mistake: Callable) -> list[str]:
    with mistake():
        return audit_update(2, overrides, keras=False).problems


print(json.dumps({name: problems(*mistake) for name, mistake in MISTAKES.items()}))
