"""Room that convolutions and max-pooling take while they run: what model/convolution.py makes of them."""

from dataclasses import dataclass
from typing import Protocol

from distxcept.model.layout import Parameter

# TensorFlow's CPU kernels unroll the windows of so many images at once that they fill its idea of a cache.
_CACHE_BYTES = 30 * 2**20
_SHARED_WORK_BYTES = 256 * 2**10
# Of a number that convolutions are multiplied with as matrices: float32 and float64.
_MULTIPLIED_BYTES = 4


@dataclass(frozen=True)
class Product:
    """A convolution or matrix product of a micro batch."""

    kernel: Parameter
    stride: int
    samples: int
    side: int
    """Pixels of its output."""
    number_bytes: int

    @property
    def convolves(self) -> bool:
        return len(self.kernel.shape) == 4 and self.kernel.kind != "depthwise"


class Workspace(Protocol):
    """Bytes that a product takes beside what it reads and writes."""

    @property
    def pool_bytes(self) -> int:
        """What the backward pass of max-pooling takes for each number of its output."""
        ...

    @property
    def pool_in_place(self) -> bool:
        """Whether it writes its result over its input."""
        ...

    def forward(self, product: Product) -> int: ...

    def backward(self, product: Product, *, input_gradient: bool) -> int: ...


@dataclass(frozen=True)
class CpuWorkspace:
    """TensorFlow's own kernels, without oneDNN."""

    threads: int
    pool_bytes: int = 8
    """Where each maximum stands."""
    pool_in_place: bool = True

    def forward(self, product: Product) -> int:
        return 0

    def backward(self, product: Product, *, input_gradient: bool) -> int:
        """For the gradient of the kernel and, at the same time, for that of the input: unrolled windows, where it is not a
        matrix product."""
        if not product.convolves:
            return 0
        size, outputs = product.kernel.shape[0], product.kernel.shape[3]
        inputs = product.kernel.elements // outputs
        multiplied = product.number_bytes >= _MULTIPLIED_BYTES
        if multiplied and size == product.stride == 1:
            return 0
        pixels = product.side**2
        unit = pixels * (inputs + outputs) + inputs * outputs
        images = min(product.samples, -(-_CACHE_BYTES // (unit * product.number_bytes)))
        alone = product.samples == 1 or unit * product.number_bytes // self.threads >= _SHARED_WORK_BYTES
        for_input = (1 if alone else images) * pixels * inputs if input_gradient else 0
        if multiplied and size == 1:
            for_kernel = product.samples * pixels * inputs  # the pixels that it reads
        elif multiplied and product.stride == 1:
            for_kernel = product.samples * (product.side + size - 1) ** 2 * outputs  # padded
        else:
            for_kernel = images * pixels * inputs
        return (for_kernel + for_input) * product.number_bytes


@dataclass(frozen=True)
class GpuWorkspace:
    """An assumption, not measured by this project: cuDNN may use a copy of a convolution's input and output."""

    pool_bytes: int = 0
    pool_in_place: bool = False

    def forward(self, product: Product) -> int:
        if not product.convolves:
            return 0
        return product.samples * product.side**2 * sum(product.kernel.shape[2:]) * product.number_bytes

    def backward(self, product: Product, *, input_gradient: bool) -> int:
        return self.forward(product)
