"""Which sample stands at which position of an epoch: a permutation of (seed, epoch), computed by position.

No list is kept and nothing is drawn in sequence, so any position of any epoch costs the same: resuming in the middle
of an epoch is asking for other positions. Rank, world size and micro batch do not occur here.

    update u           positions [u·G, u·G + G) of its epoch
    virtual batch j    positions [u·G + j·v, u·G + (j+1)·v)

The permutation is a Feistel network on the pairs (row, column) of a grid just larger than the number of samples: each
round adds to one coordinate a random function of the other, modulo its range, which can be undone and therefore loses
nothing. Positions that leave the samples walk on until they come back, so it stays a permutation of the samples.
TensorFlow's own RandomIndexShuffle is none for some numbers of samples (65,537), and far from random for small ones.
"""

from math import isqrt
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from distxcept.batching import BatchPlan
from distxcept.data.keyed import hashes_of, key_of

PADDING = -1
"""Index at a position of the last virtual batch that holds no sample."""

# Four rounds hide the structure in theory; small grids need more, and a round costs microseconds.
_ROUNDS = 12
_STREAM = 0x0D0E_5EED


def permute(positions: Any, *, samples: int, seed: int, epoch: Any) -> tf.Tensor:
    """Traced or eager. The sample indices, int64, at these positions of the epoch."""
    rows = isqrt(samples - 1) + 1
    columns = -(-samples // rows)
    epoch = tf.convert_to_tensor(epoch, tf.int64)
    keys = tf.unstack(key_of(_STREAM, seed, epoch, tf.range(_ROUNDS)))
    positions = tf.cast(tf.convert_to_tensor(positions, tf.int64), tf.uint64)

    def walk(walked: tf.Tensor, outside: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        walked = tf.where(outside, _shuffle_grid(walked, rows, columns, keys), walked)
        return walked, walked >= tf.constant(samples, tf.uint64)

    start = (positions, tf.ones_like(positions, tf.bool))
    walked, _ = tf.while_loop(lambda _, outside: tf.reduce_any(outside), walk, start)
    return tf.cast(walked, tf.int64)


def _shuffle_grid(cells: tf.Tensor, rows: int, columns: int, keys: list[tf.Tensor]) -> tf.Tensor:
    height, width = tf.constant(rows, tf.uint64), tf.constant(columns, tf.uint64)
    row, column = cells // width, cells % width
    for round_, key in enumerate(keys):
        if round_ % 2:
            column = (column + hashes_of(key, row) % width) % width
        else:
            row = (row + hashes_of(key, column) % height) % height
    return row * width + column


def indices_at(positions: tf.Tensor, *, samples: int, seed: int | None, epoch: Any) -> tf.Tensor:
    """Traced or eager. As `permute`, but `PADDING` at positions beyond the samples.

    Without a seed the order is the natural one, the same in every epoch (validation).
    """
    real = tf.logical_and(positions >= 0, positions < samples)
    if seed is None:
        indices = positions
    else:
        indices = permute(
            tf.clip_by_value(positions, 0, samples - 1), samples=samples, seed=seed, epoch=epoch
        )
    return tf.where(real, indices, tf.constant(PADDING, tf.int64))


def update_indices(
    plan: BatchPlan, *, seed: int | None, epoch: int, update: int, virtual: range
) -> NDArray[np.int64]:
    """Eager. Sample indices `[len(virtual), virtual_batch]` of these virtual batches of an update."""
    first = update * plan.global_batch
    v = plan.virtual_batch
    positions = tf.range(first + virtual.start * v, first + virtual.stop * v, dtype=tf.int64)
    indices = indices_at(positions, samples=plan.samples, seed=seed, epoch=epoch)
    return indices.numpy().reshape(len(virtual), v)
