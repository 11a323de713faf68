"""From a batch of the pipeline to what the traced update takes."""

import hashlib

import tensorflow as tf

from distxcept.batching import BatchPlan
from distxcept.data.batches import ReplicaBatch, UpdateBatch
from distxcept.training.accumulate import Batch


class Feeder:
    """Keeps the bounds of the lanes, which are the same in every whole update."""

    def __init__(self, local_replicas: range):
        self._replicas = local_replicas
        self._lane_bounds: dict[int, list[tf.Tensor]] = {}

    def __call__(self, batch: UpdateBatch, plan: BatchPlan) -> list[Batch]:
        virtual = plan.virtual_batches(batch.update)
        if virtual not in self._lane_bounds:
            self._lane_bounds[virtual] = [
                tf.constant(plan.local_lane_bounds(virtual, replica), tf.int32) for replica in self._replicas
            ]
        return [
            to_batch(replica, bounds)
            for replica, bounds in zip(batch.replicas, self._lane_bounds[virtual], strict=True)
        ]


def to_batch(replica: ReplicaBatch, lane_bounds: tf.Tensor) -> Batch:
    first = tf.constant(replica.first_virtual, tf.int32)
    return Batch(replica.images, replica.labels, replica.weights, first, lane_bounds)


def update_key(seed: int, update: int) -> int:
    """Fixes the dropout of one update, whoever computes it."""
    digest = hashlib.sha256(f"update/{seed}/{update}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
