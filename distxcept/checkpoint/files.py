"""Files that are on the disk, whole, or not there at all. Every operation here may be the last one before a power cut."""

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

CHUNK_BYTES = 1 << 22
"""Written at a time: small enough that a signal is answered soon, large enough for any disk."""

REMOVING = ".removing-"


def write_synced(path: Path, parts: Iterable[bytes | memoryview]) -> str:
    """Writes a new file, forces it to the disk, and returns the SHA-256 of what was meant to be in it."""
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        for part in parts:
            view = memoryview(part).cast("B")
            for start in range(0, len(view), CHUNK_BYTES):
                chunk = view[start : start + CHUNK_BYTES]
                digest.update(chunk)
                while len(chunk):
                    chunk = chunk[os.write(descriptor, chunk) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def sync_folder(path: Path) -> None:
    """Forces the names in a folder to the disk: a rename counts only after this."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_synced(path: Path, text: str) -> None:
    """Readers see the old content or the new one."""
    scratch = path.with_name(f".{path.name}.writing")
    write_synced(scratch, [text.encode()])
    os.replace(scratch, path)
    sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Takes the name away first, so that what is left after a kill is not mistaken for a damaged snapshot."""
    doomed = path.with_name(f"{REMOVING}{path.name}")
    _remove(doomed)
    os.rename(path, doomed)
    _remove(doomed)


def _remove(path: Path) -> None:
    """A folder with what is in it; of a link only the link."""
    if path.is_symlink() or path.is_file():
        os.unlink(path)
    elif path.exists():
        shutil.rmtree(path)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
