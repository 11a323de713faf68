"""Sums in one fixed order: the same bits on every number of replicas that divides the lanes.

A lane is a contiguous run of the update's virtual batches, fixed by the update alone. Its virtual batches are added one
by one, in order. The lanes are then added pairwise, neighbour with neighbour, level by level: pairs that one
replica holds are added there, the rest after an exchange, and both give the same tree.
"""

from collections.abc import Mapping

import tensorflow as tf

from distxcept.engines import Engine
from distxcept.training.accumulate import Accumulator, Batch, Sums


def lane_sums(
    accumulator: Accumulator,
    weights: Mapping[str, tf.Tensor],
    batch: Batch,
    *,
    key: tf.Tensor,
    scale: tf.Tensor,
    local_lanes: int,
    fused: bool,
    remat: bool,
) -> list[tf.Tensor]:
    """Traced, replica context. The sums of each of this replica's lanes: [lanes, values] and [lanes, counters]."""

    def one_virtual_batch(j: tf.Tensor) -> Sums:
        seeds = tf.stack([key, tf.cast(batch.first_virtual + j, tf.int64)])[None]
        part = batch.take(j, 1)
        return accumulator.micro_step(weights, part, seeds=seeds, scale=scale, fused=fused, remat=remat)

    def one_lane(lane: tf.Tensor, arrays: list[tf.TensorArray]):
        bounds = batch.lane_bounds
        zeros = accumulator.zeros(weights, lane)
        sums = accumulator.loop(one_virtual_batch, bounds[lane], bounds[lane + 1], zeros)
        flat = _flatten(sums)
        return lane + 1, [array.write(lane, value) for array, value in zip(arrays, flat, strict=True)]

    like = _flatten(accumulator.zeros(weights, key))
    arrays = [tf.TensorArray(tensor.dtype, local_lanes, element_shape=tensor.shape) for tensor in like]
    loop = (tf.constant(0), arrays)
    arrays = tf.while_loop(lambda lane, _: lane < local_lanes, one_lane, loop, parallel_iterations=1)[1]
    return [array.stack() for array in arrays]


def empty_lanes(zeros: Sums, local_lanes: int) -> list[tf.Tensor]:
    """What `lane_sums` gives where nothing was computed."""
    return [tf.tile(tensor[None], [local_lanes, 1]) for tensor in _flatten(zeros)]


def sum_lanes(engine: Engine, lanes: list[tf.Tensor], like: Sums) -> Sums:
    """Traced, replica context. The sums over the lanes of all replicas."""
    gathered = engine.gather([_pairs_while_even(tensor) for tensor in lanes])
    shapes = [tensor.shape for tensor in tf.nest.flatten(like)]
    return _unflatten([_tree(tensor) for tensor in gathered], shapes)


def _flatten(sums: Sums) -> list[tf.Tensor]:
    """Gradients and statistics as one vector, counters (another dtype) as a second."""
    vectors = [tf.reshape(tensor, [-1]) for tensor in [*sums.gradients, sums.statistics]]
    return [tf.concat(vectors, axis=0), sums.counters]


def _unflatten(flat: list[tf.Tensor], shapes: list[tf.TensorShape]) -> Sums:
    sizes = [shape.num_elements() for shape in shapes[:-1]]
    parts = [tf.reshape(part, shape) for part, shape in zip(tf.split(flat[0], sizes), shapes, strict=False)]
    return Sums(parts[:-1], parts[-1], flat[1])


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
