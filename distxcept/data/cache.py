"""Decoded images kept for the next epoch, in memory or in a folder on a fast disk.

Without random crops an image always gives the same square, and that is kept: the bits are those of a run without
cache. With random crops the whole decoded image is kept; crops are then cut from it instead of decoded at the
smallest scale, which can differ by a few grey levels. Size is computed and set aside before anything is decoded.
"""

import os
import shutil
import socket
import tempfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxcept.config.size import show_size
from distxcept.data.augment import View
from distxcept.data.decode import decode_whole, render, revise
from distxcept.data.header import inspect
from distxcept.data.host import free_memory, usable_cores
from distxcept.data.sources.base import BadSample, Pixels, Sample, Source, digest_of
from distxcept.data.window import centre_square
from distxcept.errors import DataError

_VERSION = 1
_ROW = np.dtype([("offset", "<u8"), ("height", "<u4"), ("width", "<u4"), ("crc32", "<u4"), ("filled", "<u4")])
_SPARE = 0.9
"""Part of the free memory or disk that may be used."""

_SQUARE = View(centre_square)


class Cache:
    """Pixels of every sample at a fixed place. Filled by whoever decodes first; several processes may share it."""

    def __init__(self, table: NDArray[Any], store: NDArray[np.uint8], image_size: int | None):
        self._table, self._store, self._image_size = table, store, image_size

    def render(self, index: int, view: View, out: Pixels, read: Callable[[], Sample], max_pixels: int) -> int:
        """Fills `out` like `decode.render`, from the cache if the sample is there; returns the stored pixels."""
        pixels = self._get(index)
        if pixels is None:
            pixels = self._decode(read(), max_pixels)
            self._put(index, pixels)
        if self._image_size is None:
            return render(Sample(pixels=pixels), view, out, max_pixels=max_pixels)
        revise(pixels, view, out)
        return pixels.shape[0] * pixels.shape[1]

    def _decode(self, sample: Sample, max_pixels: int) -> Pixels:
        if self._image_size is None:
            return decode_whole(sample, max_pixels=max_pixels)
        square = np.empty((self._image_size, self._image_size, 3), np.uint8)
        render(sample, _SQUARE, square, max_pixels=max_pixels)
        return square

    def _get(self, index: int) -> Pixels | None:
        row = self._table[index]
        if not row["filled"]:
            return None
        pixels = self._slot(row)
        # A crash of the machine may leave the row on disk without its pixels.
        return pixels if zlib.crc32(pixels.data) == row["crc32"] else None

    def _put(self, index: int, pixels: Pixels) -> None:
        row = self._table[index]
        if pixels.shape != (row["height"], row["width"], 3):
            return  # the file changed since its size was taken: use it, do not keep it
        slot = self._slot(row)
        slot[...] = pixels
        self._table["crc32"][index] = zlib.crc32(slot.data)
        self._table["filled"][index] = 1

    def _slot(self, row: Any) -> Pixels:
        start, height, width = int(row["offset"]), int(row["height"]), int(row["width"])
        return self._store[start : start + height * width * 3].reshape(height, width, 3)


def open_cache(
    where: str, source: Source, *, image_size: int, whole: bool, max_pixels: int, processes: int = 1
) -> Cache | None:
    """The cache of `data.cache`; refused with the numbers if it does not fit. None for `none`."""
    if where == "none":
        return None
    table = _layout(source, image_size, whole, max_pixels)
    last = table[-1]
    size = int(last["offset"]) + int(last["height"]) * int(last["width"]) * 3
    kept_size = None if whole else image_size
    if where == "memory":
        _check_room("memory", size * processes, free_memory(), f"{processes} × " if processes > 1 else "")
        return Cache(table, np.empty(size, np.uint8), kept_size)
    return Cache(*_open_folder(Path(where), table, size, source), kept_size)


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
    folder: Path, table: NDArray[Any], size: int, source: Source
) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Maps the files, made aside and renamed if they are not there. Each machine has its own."""
    content = digest_of("cache", [_VERSION, source.digest(), table["offset"], table["width"]])[:24]
    home = folder / f"{socket.gethostname()}-{content}"
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
