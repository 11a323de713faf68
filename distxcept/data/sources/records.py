"""TFRecord shards with an index: any sample is one read. Ours by `distxcept pack`, or existing ones."""

import os
import re
import threading
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from distxcept.data import files
from distxcept.data.records.index import GOOD, STATES, VERSION, RecordIndex, open_index, read_index
from distxcept.data.records.shard import bytes_in_example
from distxcept.data.sources.base import BadSample, Sample, Source, digest_of
from distxcept.errors import DataError

if TYPE_CHECKING:
    import tensorflow as tf

PACKED_INDEX = "index.json"
PACKING_PLAN = "packing.json"
_SHARD_NAME = re.compile(r"\.tfrecords?\b|-\d{5}-of-\d{5}$")
# Beyond this many shards files are opened for each read: the usual limit of open files is 1,024.
_MAX_OPEN = 512


_OLD_SUM = "crc32"
"""Column of the checksum in packs of the first version; now it is crc32c."""


class RecordsSource(Source):
    """Images in shards, each a range of bytes that the index names.

    The bytes of an image are compared with the checksum in the index when they are read for the first time in a
    process. Later only their length is: what has been read right once does not change on the way to a next time, as a
    rule, and Python has no part in an epoch then.
    """

    def __init__(self, index: RecordIndex, class_names: tuple[str, ...], first_label: int):
        self._index = index
        self._files: dict[int, int] = {}
        self._lock = threading.Lock()
        labels = np.asarray(index.rows["label"], np.int64) - first_label
        # -1 stands for every label that no class has, so that the array stays small.
        self._labels = np.where((labels >= 0) & (labels < len(class_names)), labels, -1).astype(np.int32)
        self._sum_column = _OLD_SUM if _OLD_SUM in (index.rows.dtype.names or ()) else "crc32c"
        names = ("state", "shard", "image_length", "image", self._sum_column)
        self._columns = [index.rows[name] for name in names]
        self.class_names = class_names

    def __len__(self) -> int:
        return len(self._index.rows)

    @property
    def labels(self) -> NDArray[np.int32]:
        return self._labels

    def identities(self) -> Iterator[bytes]:
        names = [os.fsencode(files.name_of(path)) for path in self._index.shards]
        for shard, record in zip(self._index.rows["shard"], self._index.rows["record"], strict=True):
            yield b"%s:%d" % (names[shard], record)

    def name(self, index: int) -> str:
        row = self._index.rows[index]
        place = f"{self._index.shards[row['shard']]}, record at byte {row['record']}"
        try:
            record = self._read_range(int(row["shard"]), int(row["record_length"]), int(row["record"]))
        except OSError:
            return place
        name = bytes_in_example(record, "image/filename")
        return place if name is None else f"{place} ({name.decode('utf-8', 'replace')})"

    def read(self, index: int) -> Sample:
        state, shard, length, image, checksum = (int(column[index]) for column in self._columns)
        if state != GOOD:
            raise BadSample(STATES[state])
        data = self._read_range(shard, length, image)
        if len(data) != length or self._sum(data) != checksum:
            raise BadSample("bytes in the shard differ from those that were indexed (wrong CRC)")
        return Sample(encoded=data)

    @cached_property
    def _tables(self) -> tuple["tf.Tensor", ...]:
        from distxcept.data.sources.graph import column

        states, shards, lengths, images, sums = self._columns
        usable = (states == GOOD) & (self._labels >= 0)
        return (
            column(np.where(usable, shards.astype(np.int32), -1)),
            column(images.astype(np.int64)),
            column(lengths.astype(np.int64)),
            column(sums.astype(np.int64)),
            column([os.fsencode(path) for path in self._index.shards]),
        )

    def tables(self) -> tuple["tf.Tensor", ...]:
        """Of each sample its shard (-1: not usable), offset, length and checksum, and the paths of the shards."""
        return self._tables

    def contents(
        self, indices: "tf.Tensor", tables: Sequence["tf.Tensor"] | None = None
    ) -> tuple["tf.Tensor", "tf.Tensor"]:
        """Traced."""
        import tensorflow as tf

        from distxcept.data.decode import read_files
        from distxcept.data.sources.graph import take

        shards, offsets, lengths, expected, paths = tables or self.tables()
        shard = tf.where(indices < 0, -1, take(shards, indices))
        chosen = tf.where(shard < 0, b"", take(paths, shard))
        contents, ok = read_files(chosen, take(offsets, indices), take(lengths, indices))
        ok &= tf.equal(self._sums(contents), take(expected, indices))
        return tf.where(ok, contents, b""), ok

    def _sums(self, contents: "tf.Tensor") -> "tf.Tensor":
        """Traced. The checksum of each, int64 [v], as the index has it."""
        import tensorflow as tf

        from distxcept.data.decode import checksums

        if self._sum_column != _OLD_SUM:
            return checksums(contents)
        sums = tf.numpy_function(
            lambda all_: np.array([zlib.crc32(one) for one in all_], np.int64),
            [contents],
            tf.int64,
            stateful=False,
        )
        return tf.ensure_shape(sums, contents.shape)

    def _sum(self, data: bytes) -> int:
        return zlib.crc32(data) if self._sum_column == _OLD_SUM else google_crc32c.value(data)

    def _read_range(self, shard: int, length: int, offset: int) -> bytes:
        path = self._index.shards[shard]
        if files.is_remote(path) or len(self._index.shards) > _MAX_OPEN:
            return files.read(path, offset, length)
        if shard not in self._files:
            with self._lock:
                if shard not in self._files:
                    self._files[shard] = os.open(path, os.O_RDONLY)
        return os.pread(self._files[shard], length, offset)

    def digest(self) -> str:
        rows = self._index.rows
        return digest_of(
            "records", [*self.class_names, rows[self._sum_column], rows["image_length"], self._labels]
        )

    def close(self) -> None:
        with self._lock:
            for file in self._files.values():
                os.close(file)
            self._files.clear()


def load(section: Any, *, split: str, class_names: tuple[str, ...] | None) -> RecordsSource:
    where = f"data.{split}.path"
    try:
        found = _open_packed(files.tidy(section.path), where, class_names)
        if found is not None:
            return found
        shards = _find_shards(files.tidy(section.path), where)
    except OSError as error:
        raise DataError(f"{where}: {files.problem(error)}") from None
    index = index_of(shards, section.index, section)
    return from_foreign(index, section.first_label, class_names, where)


def _open_packed(folder: str, where: str, class_names: tuple[str, ...] | None) -> RecordsSource | None:
    """None if it is not what `pack` made."""
    packed = files.join(folder, PACKED_INDEX)
    if files.is_file(packed):
        index = read_index(packed, None, {}, versions=(1, VERSION))
        if index is None:
            raise DataError(f"{where}: {packed} cannot be read or is of another version; pack the data again")
        _check_shards(index, where)
        return RecordsSource(index, _reconcile(index.class_names or (), class_names, where), 0)
    if files.exists(files.join(folder, PACKING_PLAN)):
        raise DataError(f"{where}: {folder} is not packed to its end; run the same distxcept pack again")
    return None


def index_of(shards: Sequence[str], head: str | None, section: Any) -> RecordIndex:
    """The index of foreign shards, beside them where no other place is named."""
    workers = len(os.sched_getaffinity(0))
    return open_index(head or sidecar(shards), shards, section.image_key, section.label_key, workers=workers)


def sidecar(shards: Sequence[str]) -> str:
    """Index file beside the shards; training and validation shards in one folder get one each."""
    names = zlib.crc32(b"\0".join(os.fsencode(files.name_of(path)) for path in shards))
    return files.join(files.parent_of(shards[0]), f".distxcept-index-{names:08x}.json")


def from_foreign(
    index: RecordIndex, first_label: int, class_names: tuple[str, ...] | None, where: str
) -> RecordsSource:
    """Shards of others: labels are numbers, and the largest one tells how many classes there are."""
    good = index.rows["label"][index.rows["state"] == GOOD]
    if not len(good):
        raise DataError(f"{where}: no record has both an image and a label; check image_key and label_key")
    low, high = int(good.min()), int(good.max())
    if class_names is None:
        if low < first_label:
            raise DataError(f"{where}: labels run from {low} to {high}, but first_label is {first_label}")
        class_names = tuple(str(number) for number in range(first_label, high + 1))
    return RecordsSource(index, class_names, first_label)


def _check_shards(index: RecordIndex, where: str) -> None:
    there = {
        folder: set(files.list_names(folder)) for folder in {files.parent_of(path) for path in index.shards}
    }
    for path in index.shards:
        if files.name_of(path) not in there[files.parent_of(path)]:
            raise DataError(f"{where}: shard {path} is missing; pack or copy the data again")


def _reconcile(own: tuple[str, ...], wanted: tuple[str, ...] | None, where: str) -> tuple[str, ...]:
    if wanted is not None and own != wanted[: len(own)]:
        raise DataError(
            f"{where}: its classes are not those of the training data, in the same order; pack it with "
            "--classes-from the training data"
        )
    return own if wanted is None else wanted


def _find_shards(path: str, where: str) -> list[str]:
    if files.is_dir(path):
        found = [files.join(path, name) for name in files.list_files(path) if _SHARD_NAME.search(name)]
    else:
        found = [name for name in files.find(path) if files.is_file(name)]
    shards = sorted(found, key=os.fsencode)
    if not shards:
        raise DataError(f"{where}: no TFRecord files at {path}; give their folder, or a pattern like train-*")
    return shards
