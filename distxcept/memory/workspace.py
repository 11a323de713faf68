"""Room that convolutions and max-pooling take while they run."""

from dataclasses import dataclass
from typing import Protocol

from distxcept.model.layout import Parameter

# TensorFlow's CPU kernels unroll the windows of so many images at once that they fill its idea of a cache.
_CACHE_BYTES = 30 * 2**20
_SHARED_WORK_BYTES = 256 * 2**10


class Workspace(Protocol):
    """Bytes that a convolution with this kernel takes, of `samples` images whose output has `side` pixels a side."""

    @property
    def pool_bytes(self) -> int:
        """What the backward pass of max-pooling takes for each number of its output."""
        ...

    @property
    def pool_in_place(self) -> bool:
        """Whether it writes its result over its input."""
        ...

    def forward(self, kernel: Parameter, samples: int, side: int, number_bytes: int) -> int: ...

    def backward(
        self, kernel: Parameter, samples: int, side: int, number_bytes: int, input_gradient: bool
    ) -> int: ...


@dataclass(frozen=True)
class CpuWorkspace:
    """TensorFlow's own kernels, without oneDNN."""

    threads: int
    pool_bytes: int = 8
    """Where each maximum stands."""
    pool_in_place: bool = True

    def forward(self, kernel: Parameter, samples: int, side: int, number_bytes: int) -> int:
        return 0

    def backward(
        self, kernel: Parameter, samples: int, side: int, number_bytes: int, input_gradient: bool
    ) -> int:
        """Unrolled windows for the gradient of the kernel and, at the same time, for that of the input."""
        if len(kernel.shape) != 4 or kernel.kind == "depthwise":
            return 0
        inputs, outputs = kernel.elements // kernel.shape[3], kernel.shape[3]
        unrolled = side * side * inputs
        unit = unrolled + side * side * outputs + inputs * outputs
        images = min(samples, -(-_CACHE_BYTES // (unit * number_bytes)))
        alone = samples == 1 or unit * number_bytes // self.threads >= _SHARED_WORK_BYTES
        for_input = (1 if alone else images) if input_gradient else 0
        return (images + for_input) * unrolled * number_bytes


@dataclass(frozen=True)
class GpuWorkspace:
    """An assumption, not measured by this project: cuDNN may use a copy of a convolution's input and output."""

    pool_bytes: int = 0
    pool_in_place: bool = False

    def forward(self, kernel: Parameter, samples: int, side: int, number_bytes: int) -> int:
        if len(kernel.shape) != 4 or kernel.kind == "depthwise":
            return 0
        return samples * side * side * (kernel.shape[2] + kernel.shape[3]) * number_bytes

    def backward(
        self, kernel: Parameter, samples: int, side: int, number_bytes: int, input_gradient: bool
    ) -> int:
        return self.forward(kernel, samples, side, number_bytes)
