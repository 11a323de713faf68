"""One replica a process, through Horovod. The only module that imports it.

Horovod's TensorFlow operations are not marked stateful: one that is fed by constants would be folded away, one
whose result nobody uses would be pruned, and the ranks would fall out of step. So every reduction here takes
computed values and all results are returned. Names are fixed, so that differently traced functions meet.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from distxcept.engines.single import SingleEngine


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
        self, packs: Sequence[tf.Tensor], exact: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        reduced = [self._sum_pack(pack, f"gradients_{number}") for number, pack in enumerate(packs)]
        return reduced, [self._reduce(tensor, f"exact_{number}") for number, tensor in enumerate(exact)]

    def _sum_pack(self, flat: tf.Tensor, name: str) -> tf.Tensor:
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
            if tensor.shape.num_elements() == 0:
                gathered.append(tf.zeros([self.ranks * tensor.shape[0], *tensor.shape[1:]], tensor.dtype))
                continue
            whole = self.hvd.allgather(tensor, name=f"distxcept_gather_{number}", ignore_name_scope=True)
            gathered.append(tf.ensure_shape(whole, [self.ranks * tensor.shape[0], *tensor.shape[1:]]))
        return gathered

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        self.hvd.broadcast_variables(list(variables), root_rank=0)

    def exchange(self, message: bytes) -> list[bytes]:
        self._exchanges += 1
        name = f"distxcept_exchange_{self._exchanges}"
        with tf.device(
            "CPU:0"
        ):  # by MPI: it also works before the ranks know that each has a card of its own
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
