"""What the pipeline needs to know of a data source. A new source is one file here and one registry line."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


class BadSample(Exception):
    """A sample that cannot be used. The text is the reason, in one line, for bad_images.jsonl."""


@dataclass(frozen=True)
class Sample:
    """What a source hands out for an index: encoded bytes or decoded pixels, never both."""

    encoded: bytes | None = None
    pixels: Pixels | None = None
    """uint8 [height, width, 3]."""


class Source(ABC):
    """Random access to samples by index. Reading is called from several threads at once."""

    class_names: tuple[str, ...]

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def labels(self) -> NDArray[np.int32]:
        """Label of every sample, known without decoding; -1 where it is out of range, which makes the sample bad."""

    @abstractmethod
    def name(self, index: int) -> str:
        """What a person calls the sample: its path, or where it stands in a file."""

    @abstractmethod
    def read(self, index: int) -> Sample:
        """Raises OSError for input errors, `BadSample` for what reading again would not mend."""

    @abstractmethod
    def digest(self) -> str:
        """Changes when the samples, their order, names or labels change: a run refuses to go on with other data."""

    def identities(self) -> Iterator[bytes]:
        """A name for each sample that stays when others come and go, where the source has one."""
        return (b"%d" % index for index in range(len(self)))

    def close(self) -> None:
        """Releases files; the source is not used again."""
        return


def digest_of(kind: str, parts: Iterable[Any]) -> str:
    """SHA-256 over parts that each are bytes, an array, text or a number, with their lengths, as hexadecimal."""
    state = hashlib.sha256(kind.encode())
    for part in parts:
        raw = part if isinstance(part, bytes) else _raw(part)
        state.update(len(raw).to_bytes(8, "little"))
        state.update(raw)
    return state.hexdigest()


def _raw(part: Any) -> bytes:
    if isinstance(part, np.ndarray):
        return np.ascontiguousarray(part).tobytes()
    return str(part).encode("utf-8", "surrogateescape")
