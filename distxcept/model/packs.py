"""Flat packs: many tensors in one vector, so that one operation does the work of hundreds.

Weights, optimizer slots, the moving average, gradients and their sums all have the same packs. A pack is also what
travels between replicas at once. Kernels come in several packs, last layer first: its gradients are ready first.
Batch-norm parameters and biases have a pack of their own, because weight decay does not apply to them.

    pack:   aligned tensor | aligned tensor | … | small tensors of odd sizes | zeros up to a multiple of 16

Every aligned tensor starts at a multiple of 64 bytes. There TensorFlow cuts a vector without copying it.

The plan of memory needs the sizes of packs, so this module imports TensorFlow only where it is traced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from distxcept.model.layout import Parameter

if TYPE_CHECKING:
    import tensorflow as tf

LEAST_PACKS = 4
"""Packs of kernels: enough to reduce the first while the backward pass still runs."""
ALIGNMENT = 16
"""Numbers; 64 bytes of float32."""


@dataclass(frozen=True)
class Pack:
    name: str
    parameters: tuple[Parameter, ...]
    """In the order in which they stand in the vector."""
    decays: bool = False
    """Weight decay applies to all of them, or to none."""

    @cached_property
    def sizes(self) -> list[int]:
        return [parameter.elements for parameter in self.parameters]

    @cached_property
    def aligned(self) -> int:
        """How many tensors, from the first on, have a size that is a multiple of the alignment."""
        odd = [k for k, size in enumerate(self.sizes) if size % ALIGNMENT]
        return odd[0] if odd else len(self.sizes)

    @cached_property
    def padding(self) -> int:
        return -sum(self.sizes) % ALIGNMENT

    @property
    def elements(self) -> int:
        return sum(self.sizes) + self.padding

    def cut(self, vector: "tf.Tensor") -> "list[tf.Tensor]":
        """Traced. The part of each tensor, flat."""
        import tensorflow as tf

        small = [*self.sizes[self.aligned :], *([self.padding] if self.padding else [])]
        parts = tf.split(vector, [*self.sizes[: self.aligned], sum(small)] if small else self.sizes)
        if small:
            parts = [*parts[:-1], *tf.split(parts[-1], small)]
        return parts[: len(self.parameters)]

    def split(self, vector: "tf.Tensor") -> "dict[str, tf.Tensor]":
        """Traced. The tensors by name."""
        import tensorflow as tf

        parts = self.cut(vector)
        return {p.name: tf.reshape(part, p.shape) for p, part in zip(self.parameters, parts, strict=True)}

    def join(self, tensors: "Mapping[str, tf.Tensor]") -> "tf.Tensor":
        """Traced. The vector."""
        import tensorflow as tf

        parts = [tf.reshape(tensors[p.name], [-1]) for p in self.parameters]
        if self.padding:
            parts.append(tf.zeros([self.padding], parts[0].dtype))
        return tf.concat(parts, axis=0) if len(parts) > 1 else parts[0]

    def to_numpy(self, values: Mapping[str, np.ndarray], dtype: type[np.generic]) -> np.ndarray:
        flat = [np.ravel(values[p.name]).astype(dtype, copy=False) for p in self.parameters]
        return np.concatenate([*flat, np.zeros(self.padding, dtype)])

    def from_numpy(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        ends = list(accumulate(self.sizes))
        return {
            p.name: vector[end - p.elements : end].reshape(p.shape)
            for p, end in zip(self.parameters, ends, strict=True)
        }


def split_all(packs: Sequence[Pack], vectors: "Sequence[tf.Tensor]") -> "dict[str, tf.Tensor]":
    """Traced. The tensors of all these packs by name."""
    tensors: dict[str, tf.Tensor] = {}
    for pack, vector in zip(packs, vectors, strict=True):
        tensors |= pack.split(vector)
    return tensors


def make_pack(name: str, parameters: Sequence[Parameter], *, decays: bool = False) -> Pack:
    odd = [bool(parameter.elements % ALIGNMENT) for parameter in parameters]
    aligned = [p for p, is_odd in zip(parameters, odd, strict=True) if not is_odd]
    rest = [p for p, is_odd in zip(parameters, odd, strict=True) if is_odd]
    return Pack(name, (*aligned, *rest), decays)


def pack_trained(trained: Sequence[Parameter], *, number_bytes: int, max_bytes: int) -> list[Pack]:
    """Packs of all trained parameters, given in forward order. Those whose gradients are ready first come first.

    No pack of kernels is larger than `max_bytes`, unless a single kernel is.
    """
    kernels = [parameter for parameter in reversed(trained) if parameter.decays]
    others = [parameter for parameter in reversed(trained) if not parameter.decays]
    groups = _cut([kernel.elements * number_bytes for kernel in kernels], max_bytes)
    packs = [
        make_pack(f"kernels_{number}", kernels[group.start : group.stop], decays=True)
        for number, group in enumerate(groups)
    ]
    return [*packs, *([make_pack("others", others)] if others else [])]


def _cut(sizes: Sequence[int], most: int) -> list[range]:
    """Contiguous groups of similar size, none of them above `most` if it has more than one member."""
    aim = min(most, sum(sizes) / LEAST_PACKS)
    groups: list[range] = []
    start, filled = 0, 0
    for number, size in enumerate(sizes):
        too_large = filled + size > most
        if number > start and (too_large or filled + size / 2 > aim):
            groups.append(range(start, number))
            start, filled = number, 0
        filled += size
    return [*groups, range(start, len(sizes))] if sizes else []
