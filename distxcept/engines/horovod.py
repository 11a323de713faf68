"""One replica a process, through Horovod. The only module that imports it.

Horovod's TensorFlow operations are not marked stateful: one that is fed by constants would be folded away, one
whose result nobody uses would be pruned, and the ranks would fall out of step. So every reduction here takes
computed values and all results are returned. Names are fixed, so that differently traced functions meet.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from distxcept.engines.single import SingleEngine

BUCKETS = 4
"""Gradient buckets of an update: enough to overlap with the backward pass, few enough to keep latency small."""


def pack_buckets(sizes: Sequence[int], buckets: int) -> list[list[int]]:
    """Groups tensor numbers, last layer first (its gradient is ready first), into buckets of similar size."""
    if not sizes:
        return []
    target = sum(sizes) / buckets
    packed: list[list[int]] = [[]]
    filled = 0
    for number in reversed(range(len(sizes))):
        if packed[-1] and filled + sizes[number] / 2 > target * len(packed) and len(packed) < buckets:
            packed.append([])
        packed[-1].append(number)
        filled += sizes[number]
    return packed


class HorovodEngine(SingleEngine):
    name = "horovod"

    def __init__(self, device: str, compression: str = "none", *, jit: bool = False):
        import horovod.tensorflow as hvd

        super().__init__(device, jit=jit)
        self.hvd = hvd
        self.rank, self.ranks, self.local_ranks = hvd.rank(), hvd.size(), hvd.local_size()
        self.replicas = self.ranks
        self.local_replicas = range(self.rank, self.rank + 1)
        self.compress = compression == "fp16"
        self._exchanges = 0

    def sum(
        self, gradients: Sequence[tf.Tensor], exact: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        reduced: list[Any] = [None] * len(gradients)
        sizes = [gradient.shape.num_elements() for gradient in gradients]
        for number, members in enumerate(pack_buckets(sizes, BUCKETS)):
            flat = tf.concat([tf.reshape(gradients[m], [-1]) for m in members], axis=0)
            flat = self._sum_bucket(flat, f"gradients_{number}")
            for m, part in zip(members, tf.split(flat, [sizes[m] for m in members]), strict=True):
                reduced[m] = tf.reshape(part, gradients[m].shape)
        summed = [self._reduce(tensor, f"exact_{number}") for number, tensor in enumerate(exact)]
        return reduced, summed

    def _sum_bucket(self, flat: tf.Tensor, name: str) -> tf.Tensor:
        if not self.compress:
            return self._reduce(flat, name)
        return tf.cast(self._reduce(tf.cast(flat, tf.float16), name), flat.dtype)

    def _reduce(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        # An empty one is a constant on some ranks and computed on others: only the latter would go on asking for it.
        if tensor.shape.num_elements() == 0:
            return tensor
        return self.hvd.allreduce(tensor, op=self.hvd.Sum, name=f"distxcept_{name}", ignore_name_scope=True)

    def gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        gathered = []
        for number, tensor in enumerate(tensors):
            whole = self.hvd.allgather(tensor, name=f"distxcept_gather_{number}", ignore_name_scope=True)
            gathered.append(tf.ensure_shape(whole, [self.ranks * tensor.shape[0], *tensor.shape[1:]]))
        return gathered

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        self.hvd.broadcast_variables(list(variables), root_rank=0)

    def exchange(self, message: bytes) -> list[bytes]:
        self._exchanges += 1
        name = f"distxcept_exchange_{self._exchanges}"
        with tf.device("CPU:0"):  # by MPI: it also works before the ranks know that each has a card of its own
            lengths = self.hvd.allgather(tf.constant([len(message)], tf.int32), name=f"{name}_length").numpy()
            content = tf.constant(np.frombuffer(message, np.uint8))
            joined = self.hvd.allgather(content, name=f"{name}_content").numpy().tobytes()
        ends = np.cumsum(lengths)
        return [joined[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    def shutdown(self) -> None:
        self.hvd.shutdown()


def start_horovod() -> int:
    """Starts Horovod and returns the local rank, before any device is touched."""
    import horovod.tensorflow as hvd

    hvd.init()
    return hvd.local_rank()


def has_nccl() -> bool:
    """Whether reductions of GPU tensors stay on the GPUs."""
    import horovod.tensorflow as hvd

    return bool(hvd.nccl_built())
