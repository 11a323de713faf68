"""Files by path or URL: local ones by the operating system, those with a scheme (gs://, ram:// …) by `tf.io.gfile`.

TensorFlow is imported for URLs only. Every error is an OSError; `problem` says what happened and how to mend it.
A URL never goes through `pathlib`, which makes one slash of two.
"""

import errno
import glob
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from distxcept.errors import one_line

# As TensorFlow takes a path apart.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9.]*)://")
_THREADS = 32
"""How many questions a remote file system gets at once: each may take tens of milliseconds."""
_MARKS_FOLDERS = frozenset({"gs"})
"""File systems that end the name of a folder with a slash in a listing, so that nobody has to ask for each name."""

_ERRNO = {
    "NotFoundError": errno.ENOENT,
    "PermissionDeniedError": errno.EACCES,
    "UnauthenticatedError": errno.EACCES,
    "AlreadyExistsError": errno.EEXIST,
    "UnimplementedError": errno.ENOTSUP,
    "UnavailableError": errno.EAGAIN,
    "AbortedError": errno.EAGAIN,
    "ResourceExhaustedError": errno.EAGAIN,
    "DeadlineExceededError": errno.ETIMEDOUT,
}
_CURES = {
    errno.ENOENT: "check the name",
    errno.EACCES: "ask for the right to use it, or log in first",
    errno.EAGAIN: "try again later",
    errno.ETIMEDOUT: "check the network and try again",
    errno.EIO: "check the network or the disk and try again",
}


def scheme_of(path: str | bytes) -> str:
    """`gs` for gs://bucket/x; empty for a local path."""
    found = _SCHEME.match(os.fsdecode(path))
    return found[1] if found else ""


def is_remote(path: str | bytes) -> bool:
    return bool(scheme_of(path))


def problem(error: OSError) -> str:
    """Where, what happened and how to mend it, in one line."""
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    text = " ".join(str(error.strerror or error).split())
    cure = None if error.errno is None else _CURES.get(error.errno)
    return f"{where}{text}; {cure}" if cure else f"{where}{text}"


def tidy(path: str) -> str:
    """Without slashes and dots that say nothing."""
    return path if is_remote(path) else str(Path(path))


def join(folder: str, name: str) -> str:
    if is_remote(name):
        return name
    if not is_remote(folder) or name.startswith("/"):
        return os.path.join(folder, name)
    return folder + name if folder.endswith("/") else f"{folder}/{name}"


def name_of(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def parent_of(path: str) -> str:
    if not is_remote(path):
        return str(Path(path).parent)
    start = len(scheme_of(path)) + len("://")
    return path[:start] + path[start:].rstrip("/").rpartition("/")[0]


def exists(path: str) -> bool:
    return os.path.exists(path) if not is_remote(path) else _stat(path) is not None


def is_dir(path: str) -> bool:
    if not is_remote(path):
        return os.path.isdir(path)
    found = _stat(path)
    return found is not None and found.is_directory


def is_file(path: str) -> bool:
    if not is_remote(path):
        return os.path.isfile(path)
    found = _stat(path)
    return found is not None and not found.is_directory


def size(path: str) -> int:
    if not is_remote(path):
        return os.stat(path).st_size
    found = _stat(path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return int(found.length)


def sizes(paths: Sequence[str]) -> list[int]:
    """Of many files, asked for at once where that takes its time."""
    if not any(is_remote(path) for path in paths):
        return [size(path) for path in paths]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(size, paths))


def list_names(folder: str) -> list[str]:
    return (
        os.listdir(folder)
        if not is_remote(folder)
        else [name for name, _ in list_remote(folder, kinds=False)]
    )


def list_files(folder: str) -> list[str]:
    """Names of the files in a folder, without those of folders."""
    if is_remote(folder):
        return [name for name, is_folder in list_remote(folder) if not is_folder]
    return [name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name))]


def list_remote(folder: str, *, kinds: bool = True) -> list[tuple[str, bool]]:
    """(name, whether it is a folder) of all that lies in a remote folder; without `kinds` that may be unknown."""
    with _told_as_os_error(folder):
        listed = [name for name in _gfile(folder).listdir(folder) if name.strip("/")]
    if not kinds or scheme_of(folder) in _MARKS_FOLDERS:
        return [(name.strip("/"), name.endswith("/")) for name in listed]
    with ThreadPoolExecutor(_THREADS) as pool:
        marks = pool.map(lambda name: name.endswith("/") or is_dir(join(folder, name)), listed)
        return [(name.strip("/"), mark) for name, mark in zip(listed, marks, strict=True)]


def find(pattern: str) -> list[str]:
    """Paths that match, in no certain order."""
    if not is_remote(pattern):
        return glob.glob(pattern)
    with _told_as_os_error(pattern):
        return list(_gfile(pattern).glob(pattern))


def read(path: str | bytes, offset: int = 0, length: int = -1) -> bytes:
    """Reads a range of a file. Gives fewer bytes if the file ends before."""
    if not is_remote(path):
        # Opening a pipe or a device may never end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as local:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "Not a regular file", os.fsdecode(path))
            if offset:
                local.seek(offset)
            return local.read(length)
    with open_file(os.fsdecode(path), "rb") as file:
        if offset:
            file.seek(offset)
        return bytes(file.read(length))


@contextmanager
def open_file(path: str, mode: str) -> Iterator[IO[bytes]]:
    """`rb` or `wb`. A remote file that is written may be there for others only when it is closed."""
    if not is_remote(path):
        with open(path, mode) as local:
            yield local
        return
    with _told_as_os_error(path), _gfile(path).GFile(path, mode) as file:
        yield file


def write_aside(path: str, write: Callable[[IO[bytes]], Any], *, mark: str | None = None) -> None:
    """Writes a file beside it and renames that, so that nobody sees half of it.

    With a `mark` the other file always has the same name: one that was left behind is overwritten.
    """
    aside = join(parent_of(path), f".{name_of(path)}.{mark or uuid.uuid4().hex[:12]}")
    try:
        with open_file(aside, "wb") as file:
            write(file)
            file.flush()
            if not is_remote(path):
                os.fsync(file.fileno())
        replace(aside, path)
    except BaseException:
        with suppress(OSError):
            remove(aside)
        raise


def replace(old: str, new: str) -> None:
    """Renames; a file that has the new name is gone then."""
    if not is_remote(new):
        os.replace(old, new)
        return
    with _told_as_os_error(new):
        _gfile(new).rename(old, new, overwrite=True)


def remove(path: str) -> None:
    if not is_remote(path):
        os.unlink(path)
        return
    with _told_as_os_error(path):
        _gfile(path).remove(path)


def make_folder(path: str) -> None:
    """With all above it; it may be there already."""
    if not is_remote(path):
        os.makedirs(path, exist_ok=True)
        return
    with _told_as_os_error(path):
        _gfile(path).makedirs(path)


def _stat(path: str) -> Any:
    """None if there is nothing."""
    try:
        with _told_as_os_error(path):
            return _gfile(path).stat(path)
    except FileNotFoundError:
        return None


def _gfile(path: str) -> Any:
    """`tf.io.gfile`, once it knows the scheme of this path."""
    import tensorflow as tf

    scheme = scheme_of(path)
    if scheme not in tf.io.gfile.get_registered_schemes():
        # This package adds s3, hdfs, az and others, by being imported.
        with suppress(Exception):
            import tensorflow_io  # type: ignore[import-not-found]  # noqa: F401
    known = [str(name) for name in tf.io.gfile.get_registered_schemes() if name]
    if scheme not in known:
        raise OSError(
            errno.ENOTSUP,
            f"TensorFlow has no file system for {scheme}:// here, only {', '.join(f'{k}://' for k in sorted(known))} "
            "and local paths; s3://, hdfs:// and others need the package tensorflow-io that fits this TensorFlow",
            path,
        )
    return tf.io.gfile


@contextmanager
def _told_as_os_error(path: str) -> Iterator[None]:
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        number = _ERRNO.get(type(error).__name__, errno.EIO)
        said = one_line(error) if error.message and number != errno.ENOENT else ""
        text = os.strerror(number) + (f" ({said[:200]})" if said else "")
        raise OSError(number, text, path) from None
    except UnicodeError:
        raise OSError(errno.EILSEQ, "a name that is not UTF-8", path) from None
