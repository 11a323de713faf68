"""A part of a source, chosen by a hash of each sample: the same on every machine, and stable when others are added."""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distxcept.data.sources.base import Sample, Source, digest_of
from distxcept.errors import DataError

if TYPE_CHECKING:
    import tensorflow as tf


class Subset(Source):
    def __init__(self, source: Source, indices: NDArray[np.int64]):
        self._source, self._indices = source, indices
        self._labels = source.labels[indices]
        self.class_names, self.raw = source.class_names, source.raw

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def labels(self) -> NDArray[np.int32]:
        return self._labels

    def identities(self) -> Iterator[bytes]:
        chosen = set(self._indices.tolist())
        return (name for index, name in enumerate(self._source.identities()) if index in chosen)

    def name(self, index: int) -> str:
        return self._source.name(int(self._indices[index]))

    def read(self, index: int) -> Sample:
        return self._source.read(int(self._indices[index]))

    @cached_property
    def _chosen(self) -> "tf.Tensor":
        from distxcept.data.sources.graph import column

        return column(self._indices.astype(np.int64))

    def tables(self) -> tuple["tf.Tensor", ...]:
        return self._chosen, *self._source.tables()

    def contents(
        self, indices: "tf.Tensor", tables: Sequence["tf.Tensor"] | None = None
    ) -> tuple["tf.Tensor", "tf.Tensor"]:
        """Traced."""
        import tensorflow as tf

        from distxcept.data.sources.graph import take

        chosen, *others = tables or self.tables()
        return self._source.contents(tf.where(indices < 0, indices, take(chosen, indices)), others)

    def digest(self) -> str:
        return digest_of("subset", [self._source.digest(), self._indices.astype("<i8")])

    def close(self) -> None:
        self._source.close()


def split_by_hash(source: Source, validation_fraction: float) -> tuple[Subset, Subset]:
    """(training, validation); a sample's side depends on its own identity alone."""
    bound = int(validation_fraction * 2**64)
    hashed = (
        hashlib.blake2b(identity, digest_size=8, person=b"distxcept-split").digest()
        for identity in source.identities()
    )
    held_out = np.fromiter((int.from_bytes(h, "big") < bound for h in hashed), bool, len(source))
    if held_out.all() or not held_out.any():
        raise DataError(
            f"data.validation_fraction: {validation_fraction} of {len(source)} samples leaves one side empty; "
            "use another fraction or more data"
        )
    return Subset(source, np.flatnonzero(~held_out)), Subset(source, np.flatnonzero(held_out))
