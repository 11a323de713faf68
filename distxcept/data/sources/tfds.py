"""A dataset prepared by TensorFlow Datasets, read from its TFRecord files through our own index.

The package is only asked where the files are and how the classes are called: its readers know no random access
by sample for this format.
"""

import os
from typing import Any

from distxcept.data import files
from distxcept.data.sources.records import RecordsSource, from_foreign, index_of
from distxcept.errors import ConfigError, DataError, one_line


def load(section: Any, *, split: str, class_names: tuple[str, ...] | None) -> RecordsSource:
    where = f"data.{split}"
    try:
        import tensorflow_datasets
    except ImportError as error:
        raise ConfigError(
            f"{where}.kind: tfds needs a package that is missing ({error}): pip install 'distxcept[tfds]'"
        ) from None
    try:
        builder = tensorflow_datasets.builder(section.name, data_dir=section.data_dir, try_gcs=False)
        info = builder.info.splits[section.split]
        shards = [os.fspath(name) for name in info.filepaths]
        names = tuple(builder.info.features[section.label_key].names)
    except Exception as error:  # the package raises its own, KeyError and ValueError alike
        reason = one_line(error)[:200]
        raise DataError(
            f"{where}.name: {section.name!r}, split {section.split!r} is not usable: {reason}; prepare it first "
            f"with: tfds build {section.name}"
        ) from None
    if builder.info.file_format.value != "tfrecord":
        raise DataError(
            f"{where}.name: {section.name!r} is stored as {builder.info.file_format.value}; prepare it again with: "
            f"tfds build {section.name} --file_format tfrecord"
        )
    missing = [path for path in shards if not files.is_file(path)]
    if missing:
        raise DataError(f"{where}.name: {missing[0]} is missing; prepare it: tfds build {section.name}")
    return from_foreign(
        index_of(shards, None, section), 0, class_names if class_names is not None else names, where
    )
