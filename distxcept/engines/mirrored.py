"""Several devices of one process, through tf.distribute.MirroredStrategy."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from distxcept.engines.base import Engine


class MirroredEngine(Engine):
    name = "mirrored"

    def __init__(self, devices: Sequence[str], *, jit: bool = False):
        super().__init__(jit=jit)
        # On CPUs a plain copy to one device and back: TensorFlow's collectives keep state for the whole process, and
        # one that fails can never be used again.
        on_cpu = all(device.startswith("CPU") for device in devices)
        across = tf.distribute.ReductionToOneDevice() if on_cpu else None
        self.strategy = tf.distribute.MirroredStrategy(list(devices), cross_device_ops=across)
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
        self, gradients: Sequence[tf.Tensor], exact: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        context = tf.distribute.get_replica_context()
        reduced = context.all_reduce(tf.distribute.ReduceOp.SUM, [*gradients, *exact])
        return reduced[: len(gradients)], reduced[len(gradients) :]

    def gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return tf.distribute.get_replica_context().all_gather(list(tensors), axis=0)

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        """There is one rank only, and a variable starts with the same value on each of its replicas."""

    def exchange(self, message: bytes) -> list[bytes]:
        return [message]
