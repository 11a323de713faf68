"""Sums in one fixed order: the same bits on every number of replicas that divides the lanes.

A lane is a contiguous run of the update's virtual batches, fixed by the update alone. Its virtual batches are added one
by one, in order. The lanes are then added pairwise, neighbour with neighbour, level by level: pairs that one
replica holds are added there, the rest after an exchange, and both give the same tree.
"""

from collections.abc import Sequence

import tensorflow as tf

from distxcept.data.batch import Batch
from distxcept.engines import Engine
from distxcept.training.accumulate import Accumulator, Form, Sums


def lane_sums(
    accumulator: Accumulator,
    vectors: Sequence[tf.Tensor],
    batch: Batch,
    key: tf.Tensor,
    scale: tf.Tensor,
    *,
    form: Form,
    local_lanes: int,
) -> Sums:
    """Traced, replica context. The sums of each of this replica's lanes, [lanes, …]."""

    def one_virtual_batch(j: tf.Tensor) -> Sums:
        part = batch.take(j, 1)
        return accumulator.micro_step(vectors, part, key, scale, fused=form.fused, remat=form.remat)

    def one_lane(lane: tf.Tensor, arrays: list[tf.TensorArray]):
        bounds = batch.lane_bounds
        sums = accumulator.loop(one_virtual_batch, bounds[lane], bounds[lane + 1], accumulator.zeros(lane))
        flat = tf.nest.flatten(sums)
        return lane + 1, [array.write(lane, value) for array, value in zip(arrays, flat, strict=True)]

    like = accumulator.zeros(scale)
    arrays = [
        tf.TensorArray(tensor.dtype, local_lanes, element_shape=tensor.shape)
        for tensor in tf.nest.flatten(like)
    ]
    loop = (tf.constant(0), arrays)
    arrays = tf.while_loop(lambda lane, _: lane < local_lanes, one_lane, loop, parallel_iterations=1)[1]
    return tf.nest.pack_sequence_as(like, [array.stack() for array in arrays])


def empty_lanes(zeros: Sums, local_lanes: int) -> Sums:
    """What `lane_sums` gives where nothing was computed."""
    return tf.nest.map_structure(lambda tensor: tf.tile(tensor[None], [local_lanes, 1]), zeros)


def sum_lanes(engine: Engine, lanes: Sums) -> Sums:
    """Traced, replica context. The sums over the lanes of all replicas."""
    gathered = engine.gather([_pairs_while_even(tensor) for tensor in tf.nest.flatten(lanes)])
    return tf.nest.pack_sequence_as(lanes, [_tree(tensor) for tensor in gathered])


def _pairs_while_even(lanes: tf.Tensor) -> tf.Tensor:
    while lanes.shape[0] % 2 == 0:
        lanes = lanes[0::2] + lanes[1::2]
    return lanes


def _tree(lanes: tf.Tensor) -> tf.Tensor:
    """Adds neighbours level by level; one without a neighbour moves up as it is."""
    while lanes.shape[0] > 1:
        even = lanes.shape[0] // 2 * 2
        lanes = tf.concat([lanes[0:even:2] + lanes[1:even:2], lanes[even:]], axis=0)
    return lanes[0]
