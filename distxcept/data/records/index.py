"""Where each sample of a set of shards lies, so that any of them is one read away.

An index is a pair of files: rows as a .npy, memory-mapped where it is local, and a JSON head with class names and the
shards it belongs to. `pack` writes it with the shards; foreign shards are indexed on first use.
"""

import fcntl
import io
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from distxcept.data import files
from distxcept.data.records.shard import find_in_example, read_records
from distxcept.errors import DataError

VERSION = 2

_PLACES = [
    *(("shard", "<u4"), ("record", "<u8"), ("record_length", "<u8")),
    *(("image", "<u8"), ("image_length", "<u8"), ("label", "<i8")),
]
ROW = np.dtype([*_PLACES, ("crc32c", "<u4"), ("state", "<u4")])
"""A sample: its record and the image's bytes in the shard, label, checksum of the image's bytes, and its state."""

# Of each version that can be read. The first one kept the checksum of zip files.
_ROWS = {1: np.dtype([*_PLACES, ("crc32", "<u4"), ("state", "<u4")]), VERSION: ROW}

GOOD, WRONG_CRC, NO_IMAGE, NO_LABEL = range(4)
STATES = {
    WRONG_CRC: "record with a wrong CRC",
    NO_IMAGE: "record without an image",
    NO_LABEL: "record without a label",
}


@dataclass(frozen=True)
class RecordIndex:
    shards: tuple[str, ...]
    rows: NDArray[Any]
    class_names: tuple[str, ...] | None
    """None for foreign shards, which do not tell."""


def index_shard(number: int, path: str, image_key: str, label_key: str) -> NDArray[Any]:
    """Rows of one shard."""
    rows = []
    for record in read_records(path):
        found = find_in_example(record.data if record.intact else b"", image_key, label_key)
        state = GOOD
        if found.image is None:
            state = NO_IMAGE if record.intact else WRONG_CRC
        elif found.label is None:
            state = NO_LABEL
        start, stop = found.image or (0, 0)
        place = (number, record.offset, len(record.data), record.offset + start, stop - start)
        rows.append((*place, found.label or 0, google_crc32c.value(record.data[start:stop]), state))
    return np.array(rows, dtype=ROW)


def write_index(
    head_path: str, shards: Sequence[str], rows: NDArray[Any], *, settings: dict[str, Any]
) -> None:
    """Writes rows, then the head that makes them valid, each aside and renamed."""
    files.write_aside(_with_ending(head_path, ".npy"), lambda file: file.write(npy_bytes(rows)))
    head = {
        "version": VERSION,
        "samples": len(rows),
        "rows_crc32": zlib.crc32(np.ascontiguousarray(rows).tobytes()),
        "shards": _identities(shards),
        **settings,
    }
    content = json.dumps(head, indent=1).encode() + b"\n"
    files.write_aside(head_path, lambda file: file.write(content))


def npy_bytes(rows: NDArray[Any]) -> bytes:
    """What np.save writes; it asks for more of a file than a remote one can do."""
    buffer = io.BytesIO()
    np.save(buffer, rows)
    return buffer.getvalue()


def load_npy(path: str) -> NDArray[Any]:
    if files.is_remote(path):
        return np.load(io.BytesIO(files.read(path)), allow_pickle=False)
    return np.load(path, mmap_mode="r", allow_pickle=False)


def read_index(
    head_path: str,
    shards: Sequence[str] | None,
    settings: dict[str, Any],
    *,
    versions: Sequence[int] = (VERSION,),
) -> RecordIndex | None:
    """The index if there is one that belongs to these shards and settings, else None."""
    try:
        head = json.loads(files.read(head_path))
        names = [files.join(files.parent_of(head_path), entry["name"]) for entry in head["shards"]]
        if head["version"] not in versions or any(head.get(key) != value for key, value in settings.items()):
            return None
        if shards is not None and _identities(shards) != head["shards"]:
            return None
        rows = load_npy(_with_ending(head_path, ".npy"))
        if rows.dtype != _ROWS[head["version"]] or len(rows) != head["samples"]:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    class_names = head.get("class_names")
    return RecordIndex(
        tuple(shards or names), rows, None if class_names is None else tuple(map(str, class_names))
    )


def open_index(
    head_path: str, shards: Sequence[str], image_key: str, label_key: str, *, workers: int
) -> RecordIndex:
    """The index of foreign shards, made on first use. Several processes of a machine may ask at once: one makes it."""
    settings = {"image_key": image_key, "label_key": label_key}
    found = read_index(head_path, shards, settings)
    if found is not None:
        return found
    try:
        with _one_process(head_path):
            found = read_index(head_path, shards, settings)
            if found is None:
                rows = np.concatenate(list(_index_all(shards, image_key, label_key, workers)))
                _keep(head_path, shards, rows, settings)
                found = read_index(head_path, shards, settings)
    except OSError as error:
        raise DataError(f"cannot index the shards: {files.problem(error)}") from None
    if found is None:
        raise DataError(f"{head_path}: the index was written but cannot be read back; is the disk full?")
    return found


def _keep(head_path: str, shards: Sequence[str], rows: NDArray[Any], settings: dict[str, Any]) -> None:
    try:
        write_index(head_path, shards, rows, settings=settings)
    except OSError as error:
        raise _cannot_keep(head_path, error) from None


def _cannot_keep(head_path: str, error: OSError) -> DataError:
    return DataError(
        f"{files.parent_of(head_path)}: cannot keep the index of the shards there ({error.strerror}); set index to a "
        "file in a folder that can be written"
    )


@contextmanager
def _one_process(head_path: str) -> Iterator[None]:
    """One at a time, where the index is local. A remote place has no locks: then the same is made twice, and replaced."""
    if files.is_remote(head_path):
        yield
        return
    try:
        lock = os.open(_with_ending(head_path, ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise _cannot_keep(head_path, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _index_all(shards: Sequence[str], image_key: str, label_key: str, workers: int) -> Iterator[NDArray[Any]]:
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(
            lambda item: index_shard(item[0], item[1], image_key, label_key), enumerate(shards)
        )


def _identities(shards: Sequence[str]) -> list[dict[str, Any]]:
    """What tells a shard from a changed one without reading it. No times: a copy of the folder stays valid."""
    sizes = files.sizes(shards)
    return [{"name": files.name_of(path), "bytes": size} for path, size in zip(shards, sizes, strict=True)]


def _with_ending(path: str, ending: str) -> str:
    folder, name = files.parent_of(path), files.name_of(path)
    return files.join(folder, os.path.splitext(name)[0] + ending)
