"""TFRecord shards with an index: any sample is one read. Ours by `distxcept pack`, or existing ones."""

import glob
import os
import re
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxcept.data.records.example import BrokenExample, find_features
from distxcept.data.records.index import GOOD, STATES, RecordIndex, open_index, read_index
from distxcept.data.sources.base import BadSample, Sample, Source, digest_of
from distxcept.errors import DataError

PACKED_INDEX = "index.json"
PACKING_PLAN = "packing.json"
_SHARD_NAME = re.compile(r"\.tfrecords?\b|-\d{5}-of-\d{5}$")
# Beyond this many shards files are opened for each read: the usual limit of open files is 1,024.
_MAX_OPEN = 512


class RecordsSource(Source):
    def __init__(self, index: RecordIndex, class_names: tuple[str, ...], first_label: int):
        self._index = index
        self._files: dict[int, int] = {}
        self._lock = threading.Lock()
        labels = np.asarray(index.rows["label"], np.int64) - first_label
        # -1 stands for every label that no class has, so that the array stays small.
        self._labels = np.where((labels >= 0) & (labels < len(class_names)), labels, -1).astype(np.int32)
        self._columns = [index.rows[name] for name in ("state", "shard", "image_length", "image")]
        self._was_whole = np.zeros(len(labels), bool)
        self.class_names = class_names

    def __len__(self) -> int:
        return len(self._index.rows)

    @property
    def labels(self) -> NDArray[np.int32]:
        return self._labels

    def identities(self) -> Iterator[bytes]:
        names = [path.name.encode() for path in self._index.shards]
        for shard, record in zip(self._index.rows["shard"], self._index.rows["record"], strict=True):
            yield b"%s:%d" % (names[shard], record)

    def name(self, index: int) -> str:
        row = self._index.rows[index]
        place = f"{self._index.shards[row['shard']]}, record at byte {row['record']}"
        try:
            record = self._pread(int(row["shard"]), int(row["record_length"]), int(row["record"]))
            feature = find_features(record, {"image/filename"}).get("image/filename")
        except (OSError, BrokenExample):
            feature = None
        if feature is None or feature.integer is not None:
            return place
        return f"{place} ({record[feature.start : feature.stop].decode('utf-8', 'replace')})"

    def read(self, index: int) -> Sample:
        state, shard, length, image = (int(column[index]) for column in self._columns)
        if state != GOOD:
            raise BadSample(STATES[state])
        data = self._pread(shard, length, image)
        # Once in a process: summing costs as much as reading.
        whole = self._was_whole[index] or zlib.crc32(data) == self._index.rows["crc32"][index]
        if len(data) != length or not whole:
            raise BadSample("bytes in the shard differ from those that were indexed (wrong CRC)")
        self._was_whole[index] = True
        return Sample(encoded=data)

    def _pread(self, shard: int, length: int, offset: int) -> bytes:
        if len(self._index.shards) > _MAX_OPEN:
            file = os.open(self._index.shards[shard], os.O_RDONLY)
            try:
                return os.pread(file, length, offset)
            finally:
                os.close(file)
        if shard not in self._files:
            with self._lock:
                if shard not in self._files:
                    self._files[shard] = os.open(self._index.shards[shard], os.O_RDONLY)
        return os.pread(self._files[shard], length, offset)

    def digest(self) -> str:
        rows = self._index.rows
        return digest_of("records", [*self.class_names, rows["crc32"], rows["image_length"], self._labels])

    def close(self) -> None:
        with self._lock:
            for file in self._files.values():
                os.close(file)
            self._files.clear()


def load(section: Any, *, split: str, class_names: tuple[str, ...] | None) -> RecordsSource:
    where = f"data.{split}.path"
    packed = Path(section.path) / PACKED_INDEX
    if packed.is_file():
        index = read_index(packed, None, {})
        if index is None:
            raise DataError(f"{where}: {packed} cannot be read or is of another version; pack the data again")
        _check_shards(index, where)
        return RecordsSource(index, _reconcile(index.class_names or (), class_names, where), 0)
    if packed.with_name(PACKING_PLAN).exists():
        raise DataError(
            f"{where}: {section.path} is not packed to its end; run the same distxcept pack again"
        )
    shards = _find_shards(section.path, where)
    head = Path(section.index) if section.index else sidecar(shards)
    workers = len(os.sched_getaffinity(0))
    index = open_index(head, shards, section.image_key, section.label_key, workers=workers)
    return from_foreign(index, section.first_label, class_names, where)


def sidecar(shards: Sequence[Path]) -> Path:
    """Index file beside the shards; training and validation shards in one folder get one each."""
    names = zlib.crc32(b"\0".join(os.fsencode(path.name) for path in shards))
    return shards[0].parent / f".distxcept-index-{names:08x}.json"


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
    for path in index.shards:
        if not path.is_file():
            raise DataError(f"{where}: shard {path} is missing; pack or copy the data again")


def _reconcile(own: tuple[str, ...], wanted: tuple[str, ...] | None, where: str) -> tuple[str, ...]:
    if wanted is not None and own != wanted[: len(own)]:
        raise DataError(
            f"{where}: its classes are not those of the training data, in the same order; pack it with "
            "--classes-from the training data"
        )
    return own if wanted is None else wanted


def _find_shards(path: str, where: str) -> list[Path]:
    if Path(path).is_dir():
        names = [entry for entry in Path(path).iterdir() if _SHARD_NAME.search(entry.name)]
    else:
        names = [Path(name) for name in glob.glob(path)]
    shards = sorted((name for name in names if name.is_file()), key=os.fsencode)
    if not shards:
        raise DataError(f"{where}: no TFRecord files at {path}; give their folder, or a pattern like train-*")
    return shards
