"""What a plan wants to know of the data, as far as it can be had at once: no image is listed or opened."""

import json
from dataclasses import dataclass
from pathlib import Path

from distxcept.config.schema import FolderSource, RecordsSource, Source, SyntheticSource


@dataclass(frozen=True)
class KnownData:
    """None where it is not known without opening the data."""

    samples: int | None = None
    classes: int | None = None


def peek(source: Source) -> KnownData:
    # The modules of the sources load numpy, which takes longer than all the rest of a plan.
    try:
        if isinstance(source, SyntheticSource):
            return KnownData(source.samples, source.classes)
        if isinstance(source, FolderSource) and Path(source.path).is_dir():
            from distxcept.data.sources.folder import class_folders

            return KnownData(None, len(class_folders(source.path)) or None)
        if isinstance(source, RecordsSource) and Path(source.path).is_dir():
            from distxcept.data.sources.records import PACKED_INDEX

            head = json.loads((Path(source.path) / PACKED_INDEX).read_bytes())
            return KnownData(int(head["samples"]), len(head["class_names"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return KnownData()
