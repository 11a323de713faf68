"""Images that are named one by one or lie in folders, without labels: found lazily, read ahead, handed out in batches.

The names may come from a pipe that never ends, so nothing is gathered: there are never more than a few batches in memory,
and the results stand in the order of the names. A file that cannot be used is told in its place, and never ends the rest.
"""

import os
import queue
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

import numpy as np

from distxcept.data.decode import View, render
from distxcept.data.host import usable_cores
from distxcept.data.retry import read_with_retries, reason_of, retry_without_memory
from distxcept.data.sources.base import MAX_PIXELS, BadSample, Pixels, Sample
from distxcept.data.sources.folder import files_below

PLAIN = View()
BATCHES_AHEAD = 2
LINGER_SECONDS = 0.05
"""How long a batch that is not full waits for more."""


@dataclass(frozen=True)
class FileBatch:
    paths: list[str]
    images: Pixels
    """uint8 [len(paths), size, size, 3]; zeros where a file is bad."""
    bad: dict[int, str]
    """Position in `paths` → reason."""


@dataclass(frozen=True)
class Missing:
    """A name that stands for no image."""

    path: str
    reason: str


def find_files(names: Iterable[str]) -> Iterator[str | Missing]:
    """Files as they are named; folders by all images below them, in the order of their bytes."""
    for name in names:
        if not os.path.isdir(name):
            yield name
            continue
        empty = True
        for path in files_below(os.fsencode(name)):
            empty = False
            yield os.fsdecode(path)
        if empty:
            yield Missing(name, "a folder without an image in it")


def listed_names(stream: IO[bytes], *, separator: bytes = b"\n") -> Iterator[str]:
    """Names from a pipe, as they come; empty lines are passed over."""
    if separator == b"\n":
        for line in stream:
            if name := line.rstrip(b"\r\n"):
                yield os.fsdecode(name)
        return
    rest = b""
    while chunk := stream.read1(65536) if hasattr(stream, "read1") else stream.read(65536):
        *names, rest = (rest + chunk).split(separator)
        yield from (os.fsdecode(name) for name in names if name)
    if rest:
        yield os.fsdecode(rest)


def read_batches(
    files: Iterable[str | Missing],
    *,
    batch: int,
    image_size: int,
    view: View = PLAIN,
    max_pixels: int = MAX_PIXELS,
) -> Iterator[FileBatch]:
    """As validation sees them, which `view` says. A batch may be smaller than `batch`: what has come is
    not held back for what has not."""
    pending: deque[tuple[list[str | Missing], Pixels, list[Future[str | None]]]] = deque()
    feed = _Feed(files, BATCHES_AHEAD * batch)
    pool = ThreadPoolExecutor(usable_cores(), thread_name_prefix="distxcept-data")
    try:
        while True:
            while len(pending) < BATCHES_AHEAD and (chosen := feed.take(batch, wait=not pending)):
                images = np.zeros([len(chosen), image_size, image_size, 3], np.uint8)
                tasks = [
                    pool.submit(_fill, one, out, view, max_pixels)
                    for one, out in zip(chosen, images, strict=True)
                ]
                pending.append((chosen, images, tasks))
            if not pending:
                return
            chosen, images, tasks = pending.popleft()
            reasons = [task.result() for task in tasks]
            paths = [one.path if isinstance(one, Missing) else one for one in chosen]
            yield FileBatch(paths, images, {k: why for k, why in enumerate(reasons) if why is not None})
    finally:
        feed.close()
        pool.shutdown(wait=True, cancel_futures=True)


class _Feed:
    """Names read by a thread of their own, so that waiting for the next one does not hold up those that are there."""

    def __init__(self, files: Iterable[str | Missing], room: int):
        self._queue: queue.Queue[str | Missing | _End] = queue.Queue(room)
        self._closed = threading.Event()
        self._ended: _End | None = None
        # A daemon: it may sit in a read of a pipe that never gives anything again.
        threading.Thread(target=self._run, args=(files,), name="distxcept-names", daemon=True).start()

    def take(self, most: int, *, wait: bool) -> list[str | Missing]:
        """Up to `most` names; with `wait` at least one, unless they have come to an end.

        An error of the list is raised then too, when all that came before it has been handed out.
        """
        taken: list[str | Missing] = []
        deadline = time.monotonic() + LINGER_SECONDS
        while len(taken) < most and self._ended is None:
            try:
                if wait and not taken:
                    item = self._queue.get()
                else:
                    item = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if wait and not taken:
                deadline = time.monotonic() + LINGER_SECONDS
            if isinstance(item, _End):
                self._ended = item
            else:
                taken.append(item)
        if wait and not taken and self._ended is not None and self._ended.error is not None:
            raise self._ended.error
        return taken

    def close(self) -> None:
        self._closed.set()

    def _run(self, files: Iterable[str | Missing]) -> None:
        end = _End()
        try:
            for file in files:
                if not self._put(file):
                    return
        except Exception as error:
            end = _End(error)
        self._put(end)

    def _put(self, item: "str | Missing | _End") -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=0.5)
                return True
            except queue.Full:
                continue
        return False


@dataclass(frozen=True)
class _End:
    error: Exception | None = None


def _fill(file: str | Missing, out: Pixels, view: View, max_pixels: int) -> str | None:
    """Runs in a thread. The reason if the file cannot be used."""
    if isinstance(file, Missing):
        return file.reason
    try:
        sample = read_with_retries(lambda: _read(file))
        retry_without_memory(lambda: render(sample, view, out, max_pixels=max_pixels))
    except MemoryError:
        raise
    except Exception as error:  # whatever happens to a file is its own matter
        out[...] = 0
        return reason_of(error)
    return None


def _read(path: str) -> Sample:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise BadSample("not a regular file")  # reading a device or a pipe may never end
    with open(path, "rb", buffering=0) as file:
        return Sample(encoded=file.read())
