"""Data sources by kind. A new one is a file with `load(section, …)` and a line in `KINDS`."""

import importlib
from typing import Any

from distxcept.data.sources.base import BadSample, Sample, Source

__all__ = ["KINDS", "BadSample", "Sample", "Source", "open_source"]

# kind in the config → module, imported when it is asked for: some kinds need extra packages.
KINDS: dict[str, str] = {
    "folder": "distxcept.data.sources.folder",
    "synthetic": "distxcept.data.sources.synthetic",
}


def open_source(section: Any, *, split: str = "train", class_names: tuple[str, ...] | None = None) -> Source:
    """Opens `data.train` or `data.validation`.

    `class_names` of the training data fix the label numbers of the validation data, which may lack a class.
    """
    return importlib.import_module(KINDS[section.kind]).load(section, split=split, class_names=class_names)
