"""Many paths in little memory: one block of bytes and the offsets in it, in Python and in the graph."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf


_AT_ONCE = 65_536
"""Items that are joined at once."""


class PathTable:
    """An immutable sequence of byte strings. A million paths of 30 bytes take 38 MB, and as much again in the graph."""

    def __init__(self, items: Iterable[bytes]):
        block, lengths, rest = bytearray(), array("q", [0]), iter(items)
        while part := list(islice(rest, _AT_ONCE)):
            block += b"".join(part)
            lengths.extend(map(len, part))
        self._block = bytes(block)
        self._ends = np.cumsum(lengths, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < len(self):
            raise IndexError(f"path {index} of {len(self)}")
        return self._block[self._ends[index] : self._ends[index + 1]]

    def __iter__(self) -> Iterator[bytes]:
        return (self[index] for index in range(len(self)))

    def digest_parts(self) -> tuple[bytes, bytes]:
        return self._block, self._ends.astype("<i8").tobytes()

    @cached_property
    def some_absolute(self) -> bool:
        """Whether one of them may start with a slash or a scheme."""
        firsts = np.frombuffer(self._block, np.uint8)[self._ends[:-1][np.diff(self._ends) > 0]]
        return bool((firsts == ord("/")).any()) or b"://" in self._block

    @cached_property
    def tables(self) -> tuple["tf.Tensor", ...]:
        """The block and the offsets, for `take_paths`."""
        from distxcept.data.sources.graph import column

        return column(self._block), column(self._ends)


def take_paths(tables: Sequence["tf.Tensor"], indices: "tf.Tensor") -> "tf.Tensor":
    """Traced. Paths, tf.string [v]; empty where an index is negative.

    They are cut out of the block when they are needed: a tensor of them all would take twice the memory.
    """
    import tensorflow as tf

    from distxcept.data.sources.graph import take

    block, ends = tables
    start, stop = take(ends, indices), take(ends, indices + 1)
    return tf.strings.substr(block, start, tf.where(indices < 0, tf.zeros_like(start), stop - start))
