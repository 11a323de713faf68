"""A CSV file with the path and the class of every image; other columns are ignored."""

import csv
import io
import os
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from distxcept.data import files
from distxcept.data.sources.folder import FolderSource
from distxcept.data.sources.paths import PathTable
from distxcept.errors import DataError


def load(section: Any, *, split: str, class_names: tuple[str, ...] | None) -> FolderSource:
    """Classes are sorted by name; their order in the file does not matter, that of the samples does."""
    path, where = section.path, f"data.{split}.path"
    found: dict[str, int] = {}
    first_seen = array("i")
    try:
        with _open_text(path) as file:
            paths = PathTable(_rows(csv.reader(file), section, found, first_seen, where))
    except OSError as error:
        raise DataError(f"{where}: cannot be read as CSV: {files.problem(error)}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{where}: {path} cannot be read as CSV: {error}") from None
    if not len(paths):
        raise DataError(f"{where}: {path} lists no image")
    names = class_names if class_names is not None else tuple(sorted(found, key=str.encode))
    for name in found:
        if name not in names:
            raise DataError(
                f"{where}: {path} has the class {name!r}, which the training data lacks; remove it"
            )
    number = {name: label for label, name in enumerate(names)}
    to_label = np.array([number[name] for name in found], np.int32)
    root = files.tidy(section.root) if section.root is not None else files.parent_of(path)
    return FolderSource(root, names, paths, to_label[np.array(first_seen, np.int64)])


@contextmanager
def _open_text(path: str) -> Iterator[io.TextIOBase]:
    if files.is_remote(path):
        yield io.TextIOWrapper(io.BytesIO(files.read(path)), encoding="utf-8-sig", newline="")
        return
    with open(path, newline="", encoding="utf-8-sig") as file:
        yield file


def _rows(
    reader: Any, section: Any, found: dict[str, int], labels: "array[int]", where: str
) -> Iterator[bytes]:
    header: list[str] = next(reader, [])
    columns = []
    for key in ("path_column", "label_column"):
        wanted = getattr(section, key)
        if wanted not in header:
            raise DataError(
                f"{where}: {section.path} has no column {wanted!r} in its first line, only {', '.join(header)}; "
                f"set {key}"
            )
        columns.append(header.index(wanted))
    for row in reader:
        if not row:
            continue
        if len(row) <= max(columns) or not row[columns[0]] or not row[columns[1]]:
            raise DataError(f"{where}: {section.path}:{reader.line_num}: lacks a path or a label")
        labels.append(found.setdefault(row[columns[1]], len(found)))
        yield os.fsencode(row[columns[0]])
