"""Sizes in bytes as a person writes them: `16GiB`, `500MB`, `1.5 TiB`."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

_UNITS = {"B": 1} | {
    prefix + ending: base**power
    for power, prefix in enumerate("KMGT", start=1)
    for ending, base in (("B", 1000), ("iB", 1024))
}
_PATTERN = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?i?B)")


def parse_size(text: str) -> int:
    """Bytes of a text like `16GiB`; ValueError says what is expected."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{text!r} is no size; write it like 16GiB or 500MB")
    return int(float(match[1]) * _UNITS[match[2]])


def show_size(number_of_bytes: float) -> str:
    """The size in the largest binary unit that leaves at least one before the point."""
    for unit, power in (("TiB", 4), ("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if number_of_bytes >= 1024**power:
            return f"{number_of_bytes / 1024**power:.1f} {unit}"
    return f"{int(number_of_bytes)} B"


def _check(text: str) -> str:
    try:
        parse_size(text)
    except ValueError as error:
        raise PydanticCustomError("size", "{message}", {"message": str(error)}) from None
    return text


SizeText = Annotated[
    str, Field(max_length=40, json_schema_extra={"x-type": "a size like 16GiB"}), AfterValidator(_check)
]
