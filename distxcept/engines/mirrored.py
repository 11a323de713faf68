"""Several devices of one process, through tf.distribute.MirroredStrategy."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import tensorflow as tf

from distxcept.engines.base import Engine

TRANSPORT = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=1)
"""A collective for each tensor: the packs of gradients have their size already. TensorFlow would join packs until they are
larger than a given number of bytes, and the first pack would wait for the second."""
COLLECTIVE_KEYS = 2**20
"""Collectives of a strategy are numbered in a range of this size."""


class MirroredEngine(Engine):
    name = "mirrored"
    survives_failure = False
    """NCCL's communicators stay aborted after an update that failed on one device."""

    def __init__(self, devices: Sequence[str], *, jit: bool = False):
        super().__init__(jit=jit)
        self.strategy = _strategy_of(tuple(devices))
        self.replicas = self.strategy.num_replicas_in_sync
        self.local_replicas = range(self.replicas)
        self._devices = list(devices)

    def devices(self) -> list[str]:
        return self._devices

    def variable(self, value: np.ndarray, name: str) -> tf.Variable:
        # Replicas assign equal values by themselves; ON_READ spares them a synchronisation at each assignment.
        with self.strategy.scope():
            return tf.Variable(
                value,
                name=name,
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

    def copies(self, variable: tf.Variable) -> list[np.ndarray]:
        return [copy.numpy() for copy in self.strategy.experimental_local_results(variable)]

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @tf.function(jit_compile=False, autograph=False)
        def traced(batch: Any, common: Any, **static: Any) -> Any:
            return self.strategy.run(function, args=(batch, common), kwargs=static)

        def distribute(*values: tf.Tensor) -> Any:
            return self.strategy.experimental_distribute_values_from_function(
                lambda context: values[context.replica_id_in_sync_group]
            )

        def call(batches: list, common: Any, **static: Any) -> Any:
            result = traced(tf.nest.map_structure(distribute, *batches), common, **static)
            return tf.nest.map_structure(lambda v: self.strategy.experimental_local_results(v)[0], result)

        return call

    def sum(
        self, packs: Sequence[tf.Tensor], exact: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        # The strategy launches the last of a list first.
        tensors = [*exact, *reversed(packs)]
        summed = list(tensors)
        for numbers in _by_dtype(tensors):
            reduced = tf.distribute.get_replica_context().all_reduce(
                tf.distribute.ReduceOp.SUM, [tensors[number] for number in numbers], options=TRANSPORT
            )
            for number, tensor in zip(numbers, reduced, strict=True):
                summed[number] = tf.ensure_shape(tensor, tensors[number].shape)
        return summed[len(exact) :][::-1], summed[: len(exact)]

    def gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        gathered = []
        for tensor in tensors:
            shape = [self.replicas * tensor.shape[0], *tensor.shape[1:]]
            joined = (
                tf.distribute.get_replica_context().all_gather(tensor, axis=0) if 0 not in shape else tensor
            )
            gathered.append(tf.reshape(joined, shape))
        return gathered

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        """There is one rank only, and a variable starts with the same value on each of its replicas."""

    def exchange(self, message: bytes) -> list[bytes]:
        return [message]


@cache
def _strategy_of(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    """One for all trainings of a process on these devices. The cross-device operations are TensorFlow's choice: NCCL on
    GPUs, a ring on CPUs.

    TensorFlow knows a group of devices by its number. A notebook's own strategy begins at 0, and each of ours has a range
    of its own: a number that two groups share would mix them up.
    """
    first = next(_RANGES) * COLLECTIVE_KEYS
    numbered = type("NumberedStrategy", (tf.distribute.MirroredStrategy,), {"_collective_key_base": first})
    return numbered(list(devices))


_RANGES = count(1)


def _by_dtype(tensors: Sequence[tf.Tensor]) -> list[list[int]]:
    """Numbers of the tensors that have something to sum, one list for each dtype: a collective knows only one."""
    groups: dict[tf.DType, list[int]] = {}
    for number, tensor in enumerate(tensors):
        if tensor.shape.num_elements():
            groups.setdefault(tensor.dtype, []).append(number)
    return list(groups.values())
