"""A folder with one sub-folder of images for each class, at any depth below it.

Formats are told by content, so any file counts as a sample unless it is hidden or its ending says that it is
something else. Listings are sorted by bytes: the same tree gives the same order on every file system and locale.
"""

import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxcept.data.sources.base import Sample, Source, digest_of
from distxcept.data.sources.paths import PathTable
from distxcept.errors import DataError

NOT_IMAGES = frozenset(
    b".txt .md .rst .csv .tsv .json .jsonl .yaml .yml .xml .html .log .pdf .py .db .ini .zip .gz .tar .npy "
    b".npz .mat .tfrecord .sha256 .md5".split()
)


class FolderSource(Source):
    def __init__(self, root: Path, class_names: tuple[str, ...], paths: PathTable, labels: NDArray[np.int32]):
        self._root = os.fsencode(root)
        self._paths = paths
        self._labels = labels
        self.class_names = class_names

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def labels(self) -> NDArray[np.int32]:
        return self._labels

    def identities(self) -> Iterator[bytes]:
        return iter(self._paths)

    def _path(self, index: int) -> bytes:
        return os.path.join(self._root, self._paths[index])

    def name(self, index: int) -> str:
        return os.fsdecode(self._path(index))

    def read(self, index: int) -> Sample:
        with open(self._path(index), "rb", buffering=0) as file:
            return Sample(encoded=file.read())

    def digest(self) -> str:
        labels = self._labels.astype("<i4")
        return digest_of("folder", [*self.class_names, *self._paths.digest_parts(), labels])


def load(section: Any, *, split: str, class_names: tuple[str, ...] | None) -> FolderSource:
    root, where = Path(section.path), f"data.{split}.path"
    if not root.is_dir():
        raise DataError(f"{where}: {root} is not a folder; it must hold one sub-folder of images per class")
    found = class_folders(root)
    if not found:
        raise DataError(
            f"{where}: {root} has no sub-folders; it must hold one sub-folder of images per class"
        )
    names = class_names if class_names is not None else tuple(found)
    for name in found:
        if name not in names:
            raise DataError(
                f"{where}: {root} has the class {name!r}, which the training data lacks; remove it"
            )
    labels = array("i")
    paths = PathTable(_files(root, names, found, labels))
    if not len(paths):
        raise DataError(f"{where}: {root} has class folders, but no image in them")
    return FolderSource(root, names, paths, np.array(labels, dtype=np.int32))


def class_folders(root: Path) -> list[str]:
    with os.scandir(root) as entries:
        names = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    return sorted(names, key=os.fsencode)


def _files(root: Path, names: tuple[str, ...], found: list[str], labels: "array[int]") -> Iterator[bytes]:
    """Paths relative to the root, class by class; the label of each is appended to `labels`."""
    for label, name in enumerate(names):
        if name not in found:
            continue
        for path in sorted(_walk(os.fsencode(root), os.fsencode(name))):
            labels.append(label)
            yield path


def files_below(folder: bytes) -> Iterator[bytes]:
    """Everything below the folder that may be an image, sorted; hidden files and those of other endings are not."""
    return (os.path.join(folder, path) for path in sorted(_walk(folder, b"")))


def _walk(root: bytes, below: bytes) -> Iterator[bytes]:
    """All files below; links to files count, links to folders inside a class do not (they may form a circle)."""
    with os.scandir(os.path.join(root, below)) as entries:
        for entry in entries:
            if entry.name.startswith(b"."):
                continue
            path = os.path.join(below, entry.name)
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(root, path)
            elif not entry.is_dir() and os.path.splitext(entry.name)[1].lower() not in NOT_IMAGES:
                yield path
