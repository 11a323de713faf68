"""`tf.train.Example`, as far as image datasets use it: written, and searched for where its values lie.

Reading a sample needs the image's place in the file, not a parsed copy, so `find_features` returns positions.
Written by hand because the message is small and fixed, and because packing then needs no TensorFlow.
"""

from dataclasses import dataclass

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_BYTES_LIST, _INT64_LIST = 1, 3


class BrokenExample(ValueError):
    """The bytes are not a `tf.train.Example`."""


@dataclass(frozen=True)
class Feature:
    """First value of a feature: where its bytes lie in the record, or the integer itself."""

    start: int = 0
    stop: int = 0
    integer: int | None = None


def encode_example(features: dict[str, bytes | int]) -> bytes:
    """Features in the given order, each with one value."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, int):
            content = _field(_INT64_LIST, _field(1, _encode_varint(value & (1 << 64) - 1)))
        else:
            content = _field(_BYTES_LIST, _field(1, value))
        entries += _field(1, _field(1, name.encode()) + _field(2, content))
    return _field(1, entries)


def find_features(record: bytes | memoryview, names: set[str]) -> dict[str, Feature]:
    """The features with these names; others are skipped without a look."""
    record = memoryview(record)
    found: dict[str, Feature] = {}
    try:
        for field, start, stop in _fields(record, 0, len(record)):
            if field != 1:
                continue
            for entry_field, entry_start, entry_stop in _fields(record, start, stop):
                if entry_field == 1:
                    _read_entry(record, entry_start, entry_stop, names, found)
    except (IndexError, UnicodeDecodeError) as error:
        raise BrokenExample(str(error)) from None
    return found


def _read_entry(
    record: memoryview, start: int, stop: int, names: set[str], found: dict[str, Feature]
) -> None:
    parts = {field: (start, stop) for field, start, stop in _fields(record, start, stop)}
    if 1 not in parts or 2 not in parts:
        return
    name = bytes(record[slice(*parts[1])]).decode()
    if name not in names:
        return
    for kind, list_start, list_stop in _fields(record, *parts[2]):
        for field, value_start, value_stop in _fields(record, list_start, list_stop):
            if field == 1 and kind == _BYTES_LIST:
                found[name] = Feature(value_start, value_stop)
                return
            if field == 1 and kind == _INT64_LIST:
                integer, _ = _decode_varint(record, value_start)
                found[name] = Feature(integer=integer - (1 << 64) if integer >> 63 else integer)
                return


def _fields(record: memoryview, at: int, end: int) -> list[tuple[int, int, int]]:
    """(field number, start, stop) of each field of a message; an integer's range covers its own bytes."""
    fields = []
    while at < end:
        tag, at = _decode_varint(record, at)
        wire = tag & 7
        if wire == _BYTES:
            size, at = _decode_varint(record, at)
            start, at = at, at + size
        elif wire == _VARINT:
            start = at
            _, at = _decode_varint(record, at)
        elif wire in (_FIXED64, _FIXED32):
            start, at = at, at + (8 if wire == _FIXED64 else 4)
        else:
            raise BrokenExample(f"wire type {wire}")
        if at > end:
            raise BrokenExample("a field reaches beyond its message")
        fields.append((tag >> 3, start, at))
    return fields


def _decode_varint(record: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = record[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise BrokenExample("an integer of more than 64 bits")


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return _encode_varint(number << 3 | _BYTES) + _encode_varint(len(content)) + content
