"""TFRecord framing: length, checksum of the length, data, checksum of the data."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from distxcept.data.records.crc32c import masked_crc32c
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


def write_record(file: IO[bytes], data: bytes) -> int:
    """Appends a record; returns the offset of its data."""
    length = struct.pack("<Q", len(data))
    file.write(_HEAD.pack(len(data), masked_crc32c(length)))
    offset = file.tell()
    file.write(data)
    file.write(_TAIL.pack(masked_crc32c(data)))
    return offset


def read_records(path: Path) -> Iterator[Record]:
    """All records of a shard. Wrong data is told and skipped; a wrong length leaves no way on and is an error."""
    size = path.stat().st_size
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            offset = file.tell()
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
