"""Decoded images kept for the next epoch: in memory, in a folder on a fast disk, or at a URL.

Without random crops an image always gives the same square, and that is kept: the bits are those of a run without
cache. With random crops the whole decoded image is kept; crops are then cut from it instead of decoded at the
smallest scale, which can differ by a few grey levels. Where the place has an end, the size is computed and set aside
before anything is decoded.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from distxcept.config.size import show_size
from distxcept.data import files
from distxcept.data.decode import View, decode_whole, encode_raw, render
from distxcept.data.header import inspect
from distxcept.data.host import free_memory, usable_cores
from distxcept.data.sources.base import BadSample, Pixels, Sample, Source, digest_of
from distxcept.errors import DataError

_VERSION = 2
_ROW = np.dtype(
    [("offset", "<u8"), ("height", "<u4"), ("width", "<u4"), ("crc32c", "<u4"), ("filled", "<u4")]
)
_SPARE = 0.9
"""Part of the free memory or disk that may be used."""
_IN_A_FOLDER = 1000
"""Objects of a remote cache."""

Decode = Callable[[Sample], Pixels]


class Store(Protocol):
    """Where pixels are kept. Several threads and processes may use it at once."""

    def get(self, index: int) -> Pixels | None: ...

    def put(self, index: int, pixels: Pixels) -> None: ...


class CachedSource(Source):
    """A source whose samples are decoded once. Filled by whoever reads first."""

    raw = True

    def __init__(self, source: Source, store: Store, decode: Decode):
        self._source, self._store, self._decode = source, store, decode
        self.class_names = source.class_names

    def __len__(self) -> int:
        return len(self._source)

    @property
    def labels(self) -> NDArray[np.int32]:
        return self._source.labels

    def name(self, index: int) -> str:
        return self._source.name(index)

    def identities(self) -> Iterator[bytes]:
        return self._source.identities()

    def digest(self) -> str:
        return self._source.digest()

    def read(self, index: int) -> Sample:
        pixels = self._store.get(index)
        if pixels is None:
            pixels = np.ascontiguousarray(self._decode(self._source.read(index)))
            self._store.put(index, pixels)
        return Sample(pixels=pixels)

    def close(self) -> None:
        self._source.close()


class _MappedStore:
    """Every image at a fixed place of one block, in memory or in a mapped file."""

    def __init__(self, table: NDArray[Any], block: NDArray[np.uint8]):
        self._table, self._block = table, block

    def get(self, index: int) -> Pixels | None:
        row = self._table[index]
        if not row["filled"]:
            return None
        pixels = self._slot(row)
        # A crash of the machine may leave the row on disk without its pixels.
        return pixels if google_crc32c.value(pixels.tobytes()) == row["crc32c"] else None

    def put(self, index: int, pixels: Pixels) -> None:
        row = self._table[index]
        if pixels.shape != (row["height"], row["width"], 3):
            return  # the file changed since its size was taken: use it, do not keep it
        self._slot(row)[...] = pixels
        self._table["crc32c"][index] = google_crc32c.value(pixels.tobytes())
        self._table["filled"][index] = 1

    def _slot(self, row: Any) -> Pixels:
        start, height, width = int(row["offset"]), int(row["height"]), int(row["width"])
        return self._block[start : start + height * width * 3].reshape(height, width, 3)


class _RemoteStore:
    """One object for each image: checksum and raw pixels. What cannot be read or written there is decoded instead."""

    def __init__(self, home: str):
        self._home = home
        self._folders: set[str] = set()

    def get(self, index: int) -> Pixels | None:
        try:
            content = files.read(self._path(index))
        except OSError:
            return None
        if google_crc32c.value(content[4:]) != int.from_bytes(content[:4], "little") or len(content) < 16:
            return None
        height, width = (int.from_bytes(content[at : at + 4], "little") for at in (8, 12))
        return np.frombuffer(content, np.uint8, offset=16).reshape(height, width, 3)

    def put(self, index: int, pixels: Pixels) -> None:
        path, content = self._path(index), encode_raw(pixels)
        checksum = google_crc32c.value(content).to_bytes(4, "little")
        with suppress(OSError):
            folder = files.parent_of(path)
            if folder not in self._folders:
                files.make_folder(folder)
                self._folders.add(folder)
            files.write_aside(path, lambda file: file.write(checksum + content))

    def _path(self, index: int) -> str:
        return files.join(self._home, f"{index // _IN_A_FOLDER:06d}/{index % _IN_A_FOLDER:03d}")


def open_cache(
    where: str,
    source: Source,
    *,
    image_size: int,
    whole: bool,
    max_pixels: int,
    processes: int = 1,
    interpolation: str = "bilinear",
) -> Source:
    """The source with the cache of `data.cache`; refused with the numbers if it does not fit. The source for `none`."""
    if where == "none":
        return source

    def decode(sample: Sample) -> Pixels:
        if whole:
            return decode_whole(sample, max_pixels=max_pixels)
        square = np.empty((image_size, image_size, 3), np.uint8)
        render(sample, View(interpolation=interpolation), square, max_pixels=max_pixels)
        return square

    content = [_VERSION, source.digest(), "whole" if whole else f"{image_size} {interpolation}"]
    if files.is_remote(where):
        return CachedSource(source, _open_remote(where, content), decode)
    table = _layout(source, image_size, whole, max_pixels)
    last = table[-1]
    size = int(last["offset"]) + int(last["height"]) * int(last["width"]) * 3
    if where == "memory":
        _check_room("memory", size * processes, free_memory(), f"{processes} × " if processes > 1 else "")
        return CachedSource(source, _MappedStore(table, np.empty(size, np.uint8)), decode)
    content += [table["offset"], table["width"]]
    return CachedSource(source, _MappedStore(*_open_folder(Path(where), table, size, content)), decode)


def _layout(source: Source, image_size: int, whole: bool, max_pixels: int) -> NDArray[Any]:
    table = np.zeros(len(source), _ROW)
    if whole:
        with ThreadPoolExecutor(2 * usable_cores()) as pool:
            sizes = pool.map(lambda index: _size_of(source, index, max_pixels), range(len(source)))
            for index, (width, height) in enumerate(sizes):
                table["width"][index], table["height"][index] = width, height
    else:
        table["width"] = table["height"] = image_size
    lengths = table["width"].astype(np.int64) * table["height"] * 3
    table["offset"][1:] = np.cumsum(lengths)[:-1]
    return table


def _size_of(source: Source, index: int, max_pixels: int) -> tuple[int, int]:
    """(width, height) of the upright image; nothing for a bad one."""
    try:
        sample = source.read(index)
        if sample.encoded is not None:
            return inspect(sample.encoded, max_pixels=max_pixels).upright
        assert sample.pixels is not None
        return sample.pixels.shape[1], sample.pixels.shape[0]
    except (BadSample, OSError):
        return 0, 0


def _check_room(kind: str, needed: int, free: int, times: str) -> None:
    if needed > _SPARE * free:
        raise DataError(
            f"data.cache: the decoded images take {times}{show_size(needed)} of {kind}, and {show_size(free)} is "
            "free; use data.cache=none, or shrink the images with distxcept pack --longest-side"
        )


def _open_folder(
    folder: Path, table: NDArray[Any], size: int, content: list[Any]
) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Maps the files, made aside and renamed if they are not there. Each machine has its own."""
    home = folder / f"{socket.gethostname()}-{digest_of('cache', content)[:24]}"
    if not home.is_dir():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _check_room("disk", size, shutil.disk_usage(folder).free, "")
            aside = Path(tempfile.mkdtemp(prefix=".making-", dir=folder))
        except OSError as error:
            raise DataError(f"data.cache: {folder} cannot be used: {error.strerror}") from None
        try:
            np.save(aside / "table.npy", table)
            with (aside / "pixels.bin").open("wb") as file:
                # Set aside for real: a mapped file that runs out of disk kills the process.
                os.posix_fallocate(file.fileno(), 0, max(1, size))
            os.rename(aside, home)
        except OSError as error:
            if not home.is_dir():  # else another process was first
                raise DataError(f"data.cache: {folder}: {error.strerror}") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    store = np.memmap(home / "pixels.bin", np.uint8, "r+", 0, (max(1, size),))
    return np.load(home / "table.npy", mmap_mode="r+", allow_pickle=False), store


def _open_remote(where: str, content: list[Any]) -> _RemoteStore:
    """All machines share it. Writing once tells whether that is possible, before a run relies on it."""
    home = files.join(where, digest_of("cache", content)[:24])
    try:
        files.make_folder(home)
        files.write_aside(files.join(home, "cache.txt"), lambda file: file.write(str(content[2]).encode()))
    except OSError as error:
        raise DataError(f"data.cache: {files.problem(error)}") from None
    return _RemoteStore(home)
