"""The interface between training and the devices: a new engine implements this and nothing else.

A *rank* is a process of the job, a *replica* a device with a copy of the model; a rank may hold several replicas.
Training never asks which engine it runs on: one device is an engine like the others, with identity collectives.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from distxcept.cluster.machine import processor_name


class Engine(ABC):
    name: str
    rank: int = 0
    ranks: int = 1
    local_ranks: int = 1
    """Ranks that share this host."""
    replicas: int = 1
    """Replicas of the whole job."""
    local_replicas: range = range(1)
    """Numbers of the replicas that this process holds."""
    survives_failure: bool = True
    """After an update that failed on a device this process can run another one."""

    def __init__(self, *, jit: bool = False):
        """`jit`: XLA compiles what `compile_part` is given."""
        self.jit = jit

    @property
    def is_chief(self) -> bool:
        """The one process that writes files and talks to the user."""
        return self.rank == 0

    @abstractmethod
    def devices(self) -> list[str]:
        """The device of each local replica."""

    def device_kinds(self) -> list[str]:
        """The model of each local replica's device, such as NVIDIA A100. Devices of one model compute the same bits."""
        return [device_kind(device) for device in self.devices()]

    @property
    def on_cpu(self) -> bool:
        """Whether this process' replicas are CPUs, or parts of one."""
        return self.devices()[0].startswith("CPU")

    @abstractmethod
    def variable(self, value: np.ndarray, name: str) -> tf.Variable:
        """A variable with one copy on each local replica, which a replica reads and assigns by itself."""

    @abstractmethod
    def copies(self, variable: tf.Variable) -> list[np.ndarray]:
        """The value on each local replica."""

    @abstractmethod
    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Turns `function(batch, common, **static)`, to be traced in replica context, into a callable for the host.

        The callable takes a list with one `batch` for each local replica, the `common` tensors that all replicas share,
        and Python values that select the trace; it returns what the first local replica returned.
        """

    def compile_part(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A part of what `compile` gets, which touches no variable and no other replica: with `jit` one XLA kernel.

        Not the whole: reductions, clocks and the slicing of images on the host are nothing that XLA knows.
        """
        return tf.function(function, jit_compile=True, autograph=False) if self.jit else function

    @abstractmethod
    def sum(
        self, packs: Sequence[tf.Tensor], exact: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Traced, replica context. Sums over all replicas. `packs` are flat gradients, in the order in which they are
        ready, and each travels on its own. `exact` is never compressed on the way."""

    @abstractmethod
    def gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Traced, replica context. Concatenates along the first axis in the order of the replicas."""

    @abstractmethod
    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        """Gives every rank the values of rank 0."""

    @abstractmethod
    def exchange(self, message: bytes) -> list[bytes]:
        """The messages of all ranks, in their order. Every rank has to call it."""

    def shutdown(self) -> None:  # noqa: B027 - most engines have nothing to end
        """Ends what the engine started."""


def device_kind(device: str) -> str:
    if device.startswith("CPU"):
        return processor_name()
    card = tf.config.get_visible_devices("GPU")[int(device.partition(":")[2])]
    return str(tf.config.experimental.get_device_details(card).get("device_name", "GPU"))
