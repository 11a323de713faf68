"""Tensors in a safetensors file: a header in JSON, then plain numbers. Nothing in it can be executed.

Written here part by part, so that a background thread neither copies the tensors once more nor holds up Python;
read by the safetensors library, which checks the header, and only what has the expected shape and type.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

_CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "uint8": "U8",
    "bool": "BOOL",
}  # fmt: skip
_NAMES = {code: name for name, code in _CODES.items()}
_ALIGNMENT = 8


class TensorsError(Exception):
    """The file cannot be used; the text says why."""


class OtherModelError(TensorsError):
    """The file is whole, but its tensors are not those that were asked for."""


@dataclass(frozen=True)
class Kind:
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}"


def kind_of(value: Any) -> Kind:
    """Of an array or a variable."""
    dtype = value.dtype
    return Kind(tuple(value.shape), getattr(dtype, "name", None) or str(dtype))


def encode(tensors: Mapping[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    """The content of the file, in parts that share the tensors' memory."""
    # Wide numbers first, so that each tensor stays aligned.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": {"format": "np"}}
    end = 0
    for name in names:
        kind = kind_of(tensors[name])
        begin, end = end, end + tensors[name].nbytes
        header[name] = {"dtype": _CODES[kind.dtype], "shape": kind.shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    yield struct.pack("<Q", len(text)) + text
    for name in names:
        value = np.ascontiguousarray(tensors[name])
        if value.size:
            yield value.reshape(-1).view(np.uint8).data


def encoded_bytes(tensors: Mapping[str, np.ndarray]) -> int:
    """At least as much as the file will take."""
    return sum(value.nbytes for value in tensors.values()) + 300 * len(tensors) + 4096


def read_tensors(
    path: Path, wanted: Mapping[str, Kind] | None = None, *, others_too: bool = False
) -> dict[str, np.ndarray]:
    """`wanted` tensors, or all. Names, shapes and types are compared before any value is read.

    With `others_too` the file may hold more than what is wanted.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            names = set(file.keys())
            if wanted is not None:
                _compare(path, {name: _stored_kind(file, name) for name in names}, wanted, others_too)
            return {name: file.get_tensor(name) for name in (names if wanted is None else wanted)}
    except (OSError, SafetensorError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise TensorsError(f"{path}: {error}") from error


def read_kinds(path: Path) -> dict[str, Kind]:
    """Shape and type of every tensor, from the header alone."""
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: _stored_kind(file, name) for name in sorted(file.keys())}
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise TensorsError(f"{path}: {error}") from error


def _stored_kind(file: Any, name: str) -> Kind:
    part = file.get_slice(name)
    code = part.get_dtype()
    return Kind(tuple(part.get_shape()), _NAMES.get(code, code))


def _compare(path: Path, found: Mapping[str, Kind], wanted: Mapping[str, Kind], others_too: bool) -> None:
    for name, kind in wanted.items():
        if found.get(name) != kind:
            has = f"has {name} as {found[name]}" if name in found else f"has no {name}"
            raise OtherModelError(f"{path} {has}, but this model and optimizer have {kind}")
    extra = sorted(found.keys() - wanted.keys())
    if extra and not others_too:
        raise OtherModelError(f"{path} has {extra[0]}, which this model and optimizer do not have")
