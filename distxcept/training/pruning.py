"""Pruning by magnitude: which part of a kernel is zero after an update is a pure function of the update's number.

The mask is not kept anywhere: it is where the weights are zero. So it is the same on every engine that has the same
weights, and a run that goes on from a snapshot has it again, bit for bit.
"""

import tensorflow as tf

from distxcept.config.schema import Pruning
from distxcept.model.network import Described


def sparsity_at(config: Pruning, update: int) -> float:
    """The part that is to be zero after update number `update`, counted from 0 over the whole run."""
    if update < config.begin_update:
        return 0.0
    progress = min(1.0, (update - config.begin_update) / (config.end_update - config.begin_update))
    return config.final_sparsity * (1.0 - (1.0 - progress) ** 3)


def prune_to(config: Pruning | None, update: int) -> float:
    """As `sparsity_at` in updates that prune; 0 in all others, which only keep what is zero."""
    if config is None:
        return 0.0
    due = (update - config.begin_update) % config.every_updates == 0 or update == config.end_update
    return sparsity_at(config, update) if due else 0.0


def prunable(model: Described) -> set[str]:
    """Names of kernels. Depthwise ones are few and each counts; the first and the last layer are spared as is the custom."""
    kernels = [parameter.name for parameter in model.parameters if parameter.kind == "kernel"]
    return set(kernels[1:-1])


def prune(old: tf.Tensor, new: tf.Tensor, part: tf.Tensor) -> tf.Tensor:
    """Traced. The new weight, zero where the old one was, and where it is among the smallest `part` of the kernel."""
    new = tf.where(old == 0, tf.zeros_like(new), new)
    size = tf.reshape(tf.abs(new), [-1])
    elements = size.shape[0]
    with tf.device("CPU:0"):  # the host decides whether a device sorts
        count = tf.cast(tf.floor(part * elements), tf.int32)
        sorts = count > 0

    def threshold() -> tf.Tensor:
        return tf.sort(size)[count - 1]

    # Sorting a kernel takes time: only in updates that prune.
    limit = tf.cond(sorts, threshold, lambda: tf.zeros([], new.dtype))
    return tf.where(tf.abs(new) > limit, new, tf.zeros_like(new))
