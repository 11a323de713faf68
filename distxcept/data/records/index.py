"""Where each sample of a set of shards lies, so that any of them is one read away.

An index is a folder-level pair of files: rows as a memory-mapped .npy and a JSON head with class names and the
shards it belongs to. `pack` writes it with the shards; foreign shards are indexed on first use.
"""

import fcntl
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxcept.data.records.example import BrokenExample, find_features
from distxcept.data.records.shard import read_records
from distxcept.errors import DataError

VERSION = 1

ROW = np.dtype(
    [
        ("shard", "<u4"),
        ("record", "<u8"),
        ("record_length", "<u8"),
        ("image", "<u8"),
        ("image_length", "<u8"),
        ("label", "<i8"),
        ("crc32", "<u4"),
        ("state", "<u4"),
    ]
)
"""A sample: its record and the image's bytes in the shard, label, checksum of the image's bytes, and its state."""

GOOD, WRONG_CRC, NO_IMAGE, NO_LABEL = range(4)
STATES = {
    WRONG_CRC: "record with a wrong CRC",
    NO_IMAGE: "record without an image",
    NO_LABEL: "record without a label",
}


@dataclass(frozen=True)
class RecordIndex:
    shards: tuple[Path, ...]
    rows: NDArray[Any]
    class_names: tuple[str, ...] | None
    """None for foreign shards, which do not tell."""


def index_shard(number: int, path: Path, image_key: str, label_key: str) -> NDArray[Any]:
    """Rows of one shard."""
    rows = []
    for record in read_records(path):
        image, label, state = (0, 0), 0, GOOD
        try:
            found = find_features(record.data, {image_key, label_key}) if record.intact else {}
        except BrokenExample:
            found = {}
        if image_key in found and found[image_key].integer is None:
            image = (found[image_key].start, found[image_key].stop)
        else:
            state = NO_IMAGE if record.intact else WRONG_CRC
        value = found[label_key].integer if label_key in found else None
        if value is None:
            state = state or NO_LABEL
        else:
            label = value
        crc = zlib.crc32(record.data[slice(*image)])
        place = (number, record.offset, len(record.data), record.offset + image[0], image[1] - image[0])
        rows.append((*place, label, crc, state))
    return np.array(rows, dtype=ROW)


def write_index(
    head_path: Path, shards: Sequence[Path], rows: NDArray[Any], *, settings: dict[str, Any]
) -> None:
    """Writes rows, then the head that makes them valid, each aside and renamed."""
    rows_path = head_path.with_suffix(".npy")
    _replace(rows_path, lambda file: np.save(file, rows))
    head = {
        "version": VERSION,
        "samples": len(rows),
        "rows_crc32": zlib.crc32(np.ascontiguousarray(rows).tobytes()),
        "shards": [_identity(path) for path in shards],
        **settings,
    }
    _replace(head_path, lambda file: file.write(json.dumps(head, indent=1).encode() + b"\n"))


def read_index(
    head_path: Path, shards: Sequence[Path] | None, settings: dict[str, Any]
) -> RecordIndex | None:
    """The index if there is one that belongs to these shards and settings, else None."""
    try:
        head = json.loads(head_path.read_bytes())
        names = [head_path.parent / entry["name"] for entry in head["shards"]]
        if head["version"] != VERSION or any(head.get(key) != value for key, value in settings.items()):
            return None
        if shards is not None and [_identity(path) for path in shards] != head["shards"]:
            return None
        rows = np.load(head_path.with_suffix(".npy"), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if rows.dtype != ROW or len(rows) != head["samples"]:
        return None
    class_names = head.get("class_names")
    return RecordIndex(
        tuple(shards or names), rows, None if class_names is None else tuple(map(str, class_names))
    )


def open_index(
    head_path: Path, shards: Sequence[Path], image_key: str, label_key: str, *, workers: int
) -> RecordIndex:
    """The index of foreign shards, made on first use. Several processes may ask at once: one makes it."""
    settings = {"image_key": image_key, "label_key": label_key}
    found = read_index(head_path, shards, settings)
    if found is not None:
        return found
    try:
        lock = os.open(head_path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise DataError(
            f"{head_path.parent}: cannot keep the index of the shards there ({error.strerror}); set index to a "
            "file in a folder that can be written"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = read_index(head_path, shards, settings)
        if found is None:
            rows = np.concatenate(list(_index_all(shards, image_key, label_key, workers)))
            write_index(head_path, shards, rows, settings=settings)
            found = read_index(head_path, shards, settings)
    finally:
        os.close(lock)
    if found is None:
        raise DataError(f"{head_path}: the index was written but cannot be read back; is the disk full?")
    return found


def _index_all(
    shards: Sequence[Path], image_key: str, label_key: str, workers: int
) -> Iterator[NDArray[Any]]:
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(
            lambda item: index_shard(item[0], item[1], image_key, label_key), enumerate(shards)
        )


def _identity(path: Path) -> dict[str, Any]:
    """What tells a shard from a changed one without reading it. No times: a copy of the folder stays valid."""
    return {"name": path.name, "bytes": path.stat().st_size}


def _replace(path: Path, write: Callable[[Any], Any]) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
