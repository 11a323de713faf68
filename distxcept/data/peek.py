"""What a plan wants to know of the data, as far as it can be had at once: no file of images is listed or opened."""

import json
from dataclasses import dataclass
from pathlib import Path

from distxcept.config.schema import FolderSource, RecordsSource, Source, SyntheticSource
from distxcept.data.sources.folder import class_folders
from distxcept.data.sources.records import PACKED_INDEX


@dataclass(frozen=True)
class Glimpse:
    """None where it is not known without opening the data."""

    samples: int | None = None
    classes: int | None = None


def peek(source: Source) -> Glimpse:
    try:
        if isinstance(source, SyntheticSource):
            return Glimpse(source.samples, source.classes)
        if isinstance(source, FolderSource):
            return Glimpse(None, len(class_folders(Path(source.path))) or None)
        if isinstance(source, RecordsSource):
            head = json.loads((Path(source.path) / PACKED_INDEX).read_bytes())
            return Glimpse(int(head["samples"]), len(head["class_names"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return Glimpse()
