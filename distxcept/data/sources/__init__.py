"""Data sources by kind. A new one is a file with `load(section, …)` and a line in `KINDS`."""

import importlib
from typing import Any

from distxcept.config.schema import FolderSource
from distxcept.data.sources.base import BadSample, Sample, Source
from distxcept.data.sources.split import split_by_hash
from distxcept.errors import ConfigError

__all__ = [
    "KINDS",
    "BadSample",
    "Sample",
    "Source",
    "open_folder",
    "open_source",
    "open_sources",
    "open_split",
]

# kind in the config → module, imported when it is asked for: some kinds need extra packages.
KINDS: dict[str, str] = {
    "folder": "distxcept.data.sources.folder",
    "manifest": "distxcept.data.sources.manifest",
    "records": "distxcept.data.sources.records",
    "tfds": "distxcept.data.sources.tfds",
    "arrays": "distxcept.data.sources.arrays",
    "synthetic": "distxcept.data.sources.synthetic",
}


def open_source(section: Any, *, split: str = "train", class_names: tuple[str, ...] | None = None) -> Source:
    """Opens `data.train` or `data.validation`.

    `class_names` of the training data fix the label numbers of the validation data, which may lack a class.
    """
    return importlib.import_module(KINDS[section.kind]).load(section, split=split, class_names=class_names)


def open_sources(data: Any, class_names: tuple[str, ...] | None = None) -> tuple[Source, Source | None]:
    """Training and validation data of the config's `data` section; None if it has no validation.

    `class_names` are those of a model that is trained already; else the training data tells them.
    """
    train = open_source(data.train, class_names=class_names)
    if data.validation is not None:
        return train, open_source(data.validation, split="validation", class_names=train.class_names)
    if data.validation_fraction is not None:
        return split_by_hash(train, data.validation_fraction)
    return train, None


def open_split(data: Any, split: str, class_names: tuple[str, ...] | None = None) -> Source | None:
    """`train` or `validation` alone, as far as it has a source of its own: the other may lie elsewhere.

    None where the config has no validation data.
    """
    if split == "train" and data.validation_fraction is None:
        return open_source(data.train, class_names=class_names)
    if split == "validation" and data.validation is not None:
        return open_source(data.validation, split="validation", class_names=class_names)
    if data.validation_fraction is None:
        return None
    train, validation = open_sources(data, class_names)
    return train if split == "train" else validation


def open_for_scores(
    data: Any, class_names: tuple[str, ...], *, split: str | None, folder: str | None
) -> Source:
    """What a trained model is to be judged on: a split of the run's data, or a folder."""
    if folder is not None:
        if split is not None:
            raise ConfigError("a folder and a split are two different sets of images; give one of them")
        return open_folder(folder, class_names)
    if split not in (None, "validation", "train"):
        raise ConfigError(f"there is no split {split!r}; there are validation and train")
    source = open_split(data, split or "validation", class_names)
    if source is None:
        raise ConfigError("the run has no validation data; name a folder of images, or take the split train")
    return source


def open_folder(path: str, class_names: tuple[str, ...] | None = None) -> Source:
    """A folder that no config names, with one sub-folder per class."""
    section = FolderSource(kind="folder", path=path)
    return open_source(section, split="validation", class_names=class_names)
