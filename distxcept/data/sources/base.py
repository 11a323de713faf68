"""What the pipeline needs to know of a data source. A new source is one file here and one registry line."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import tensorflow as tf

Pixels = NDArray[np.uint8]

MAX_PIXELS = 100_000_000
"""Images that declare more are bad, where no config says otherwise."""


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

    raw: bool = False
    """Whether the graph gets pixels or encoded images from `contents`.

    Set it to True in a source whose `read` gives pixels. It is only a matter of speed: samples of the other form are
    converted without loss, one by one.
    """

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

    def tables(self) -> tuple["tf.Tensor", ...]:
        """What `contents` looks things up in.

        A dataset that gets them as elements (`graph.with_tables`) uses them where they are. As constants of its
        functions it would copy them.
        """
        return ()

    def contents(
        self, indices: "tf.Tensor", tables: Sequence["tf.Tensor"] | None = None
    ) -> tuple["tf.Tensor", "tf.Tensor"]:
        """Traced. Samples of a virtual batch, tf.string [v], and whether each could be read, bool [v].

        `indices` is int64 [v]; -1 is padding. `tables` are those of this source; None takes them as constants. A sample that
        cannot be read is an empty string, never an error. This way calls `read` for each; a source that can be read
        without Python has its own.
        """
        from distxcept.data.sources.graph import read_in_python

        return read_in_python(self, indices)

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
