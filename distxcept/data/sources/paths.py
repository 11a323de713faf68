"""Many paths in little memory: one block of bytes and the offsets in it, instead of a Python object for each."""

from array import array
from collections.abc import Iterable, Iterator

import numpy as np


class PathTable:
    """An immutable sequence of byte strings. A million paths of 40 bytes take 48 MB, not 120."""

    def __init__(self, items: Iterable[bytes]):
        block = bytearray()
        ends = array("q", [0])
        for item in items:
            block += item
            ends.append(len(block))
        self._block = bytes(block)
        self._ends = np.array(ends, dtype=np.int64)

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
