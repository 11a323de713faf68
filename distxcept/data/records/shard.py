"""TFRecord framing (length, checksum of the length, data, checksum of the data) and the Examples in it."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import google_crc32c

from distxcept.data import files
from distxcept.errors import DataError

_HEAD = struct.Struct("<QI")
_TAIL = struct.Struct("<I")


@dataclass(frozen=True)
class Record:
    offset: int
    """Of the data in the file."""
    data: bytes
    intact: bool
    """Whether the data has the checksum that was stored with it."""


@dataclass(frozen=True)
class Found:
    """What an Example holds, as far as it is asked for; None where that is not there."""

    image: tuple[int, int] | None
    """Start and end of the image's bytes in the record."""
    label: int | None


def masked_crc32c(data: bytes) -> int:
    """As TFRecord stores it: rotated and offset, so that a checksum of a checksum is no trouble."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(data: bytes) -> tuple[bytes, bytes]:
    """What stands before and after the data of a record."""
    length = struct.pack("<Q", len(data))
    return _HEAD.pack(len(data), masked_crc32c(length)), _TAIL.pack(masked_crc32c(data))


def write_record(file: IO[bytes], at: int, data: bytes) -> tuple[int, int]:
    """Writes a record at the end of a file, which is at byte `at`; (offset of its data, new end of the file)."""
    head, tail = frame(data)
    for part in (head, data, tail):
        file.write(part)
    return at + len(head), at + len(head) + len(data) + len(tail)


def read_records(path: str) -> Iterator[Record]:
    """All records of a shard. Wrong data is told and skipped; a wrong length leaves no way on and is an error."""
    size, offset = files.size(path), 0
    with files.open_file(path, "rb") as file:
        while head := file.read(_HEAD.size):
            offset += len(head)
            if len(head) < _HEAD.size:
                raise DataError(f"{path}: ends in the middle of a record at byte {offset}; copy it again")
            length, length_crc = _HEAD.unpack(head)
            if masked_crc32c(head[:8]) != length_crc:
                raise DataError(
                    f"{path}: the length of the record at byte {offset} has a wrong checksum, so nothing after "
                    "it can be found; copy the file again (compressed TFRecord files are not supported)"
                )
            if offset + length + _TAIL.size > size:
                raise DataError(f"{path}: ends in the middle of a record at byte {size}; copy it again")
            data = file.read(length)
            (crc,) = _TAIL.unpack(file.read(_TAIL.size))
            yield Record(offset, data, masked_crc32c(data) == crc)
            offset += length + _TAIL.size


def encode_example(features: dict[str, bytes | int]) -> bytes:
    """A `tf.train.Example` with one value for each feature; the same features give the same bytes."""
    import tensorflow as tf

    example = tf.train.Example()
    for name, value in features.items():
        if isinstance(value, int):
            example.features.feature[name].int64_list.value.append(value)
        else:
            example.features.feature[name].bytes_list.value.append(value)
    return bytes(example.SerializeToString(deterministic=True))


def find_in_example(record: bytes, image_key: str, label_key: str) -> Found:
    """Where the image is and what the label is, of an Example; nothing if it is none."""
    features = _features(record)
    images, labels = (
        _values(features, key, kind) for key, kind in ((image_key, "bytes_list"), (label_key, "int64_list"))
    )
    image = None
    if images:
        # Reading needs the place in the file. Any place with these bytes will do.
        start = record.find(images[0])
        image = (start, start + len(images[0])) if start >= 0 else None
    return Found(image, int(labels[0]) if labels else None)


def bytes_in_example(record: bytes, key: str) -> bytes | None:
    """The first value of a feature of bytes; None without one."""
    values = _values(_features(record), key, "bytes_list")
    return bytes(values[0]) if values else None


def _features(record: bytes) -> Any:
    import tensorflow as tf
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return tf.train.Example.FromString(record).features.feature
    except DecodeError:
        return {}


def _values(features: Any, key: str, kind: str) -> Any:
    return getattr(features[key], kind).value if key in features else ()
