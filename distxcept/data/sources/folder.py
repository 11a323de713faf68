"""A folder with one sub-folder of images for each class, at any depth below it.

Formats are told by content, so any file counts as a sample unless it is hidden or its ending says that it is
something else. Listings are sorted by bytes: the same tree gives the same order on every file system and locale, and
at every URL that TensorFlow can read.
"""

import os
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distxcept.data import files
from distxcept.data.sources.base import Sample, Source, digest_of
from distxcept.data.sources.paths import PathTable, take_paths
from distxcept.errors import DataError

if TYPE_CHECKING:
    import tensorflow as tf

NOT_IMAGES = frozenset(
    b".txt .md .rst .csv .tsv .json .jsonl .yaml .yml .xml .html .log .pdf .py .db .ini .zip .gz .tar .npy "
    b".npz .mat .tfrecord .sha256 .md5".split()
)


# As `files.scheme_of` tells it, for any bytes after the start.
_ABSOLUTE = r"(?:/|[A-Za-z][A-Za-z0-9.]*://)\C*"


class FolderSource(Source):
    """Files, named by paths below a root; also those of a manifest."""

    def __init__(self, root: str, class_names: tuple[str, ...], paths: PathTable, labels: NDArray[np.int32]):
        self._root = root
        self._prefix = os.fsencode(files.join(root, ""))
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
        return os.fsencode(files.join(self._root, os.fsdecode(self._paths[index])))

    def name(self, index: int) -> str:
        return os.fsdecode(self._path(index))

    def read(self, index: int) -> Sample:
        return Sample(encoded=files.read(self._path(index)))

    def tables(self) -> tuple["tf.Tensor", ...]:
        return self._paths.tables

    def contents(
        self, indices: "tf.Tensor", tables: Sequence["tf.Tensor"] | None = None
    ) -> tuple["tf.Tensor", "tf.Tensor"]:
        """Traced."""
        from distxcept.data.decode import read_files

        return read_files(self._full_paths(indices, tables or self.tables()))

    def _full_paths(self, indices: "tf.Tensor", tables: Sequence["tf.Tensor"]) -> "tf.Tensor":
        """Traced. Empty for padding."""
        import tensorflow as tf

        paths = take_paths(tables, indices)
        complete = indices < 0
        if self._paths.some_absolute:
            complete |= tf.strings.regex_full_match(paths, _ABSOLUTE)
        return tf.where(complete, paths, tf.strings.join([self._prefix, paths]))

    def digest(self) -> str:
        labels = self._labels.astype("<i4")
        return digest_of("folder", [*self.class_names, *self._paths.digest_parts(), labels])


def load(section: Any, *, split: str, class_names: tuple[str, ...] | None) -> FolderSource:
    root, where = files.tidy(section.path), f"data.{split}.path"
    try:
        if not files.is_dir(root):
            raise DataError(
                f"{where}: {root} is not a folder; it must hold one sub-folder of images per class"
            )
        return _list(root, where, class_names)
    except OSError as error:
        raise DataError(f"{where}: {files.problem(error)}") from None


def _list(root: str, where: str, class_names: tuple[str, ...] | None) -> FolderSource:
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


def class_folders(root: str) -> list[str]:
    if files.is_remote(root):
        names = [
            name for name, is_folder in files.list_remote(root) if is_folder and not name.startswith(".")
        ]
    else:
        with os.scandir(root) as entries:
            names = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    return sorted(names, key=os.fsencode)


def _files(root: str, names: tuple[str, ...], found: list[str], labels: "array[int]") -> Iterator[bytes]:
    """Paths relative to the root, class by class; the label of each is appended to `labels`."""
    for label, name in enumerate(names):
        if name not in found:
            continue
        below = (
            _walk_remote(root, name) if files.is_remote(root) else _walk(os.fsencode(root), os.fsencode(name))
        )
        for path in sorted(below):
            labels.append(label)
            yield path


def files_below(folder: bytes) -> Iterator[bytes]:
    """Everything below the folder that may be an image, sorted; hidden files and those of other endings are not."""
    return (os.path.join(folder, path) for path in sorted(_walk(folder, b"")))


def _walk(root: bytes, below: bytes) -> Iterator[bytes]:
    """All files below; links to files count, links to folders inside a class do not (they may form a circle)."""
    prefix = os.path.join(below, b"")
    with os.scandir(os.path.join(root, below)) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(b"."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(root, prefix + name)
            elif not entry.is_dir() and _may_be_image(name):
                yield prefix + name


def _walk_remote(root: str, below: str) -> Iterator[bytes]:
    """The same for a URL, where there are no links."""
    for name, is_folder in files.list_remote(files.join(root, below)):
        if name.startswith("."):
            continue
        path = files.join(below, name)
        if is_folder:
            yield from _walk_remote(root, path)
        elif _may_be_image(os.fsencode(name)):
            yield os.fsencode(path)


def _may_be_image(name: bytes) -> bool:
    return name[name.rfind(b".") :].lower() not in NOT_IMAGES
