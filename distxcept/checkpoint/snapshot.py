"""A snapshot: a folder with tensors (safetensors), state (JSON) and a manifest with the SHA-256 of both.

    checkpoints/update-00001200/  tensors.safetensors · state.json · manifest.json

It is written under another name, synced to the disk and renamed, so it is there whole or not at all. Nothing in it is
ever executed: no pickle, and tensors only go into variables that our own code made.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distxcept.checkpoint.files import sha256_of, sync_folder, write_synced
from distxcept.checkpoint.tensors import (
    Kind,
    OtherModelError,
    TensorsError,
    encode,
    read_kinds,
    read_tensors,
)

FORMAT = 1
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
MAX_JSON_BYTES = 1 << 26
_NAME = re.compile(r"^update-(\d{8,18})$")


class SnapshotError(Exception):
    """This snapshot cannot be used; the text says why."""


class OtherTrainingError(SnapshotError):
    """The snapshot is whole, but holds another model or optimizer."""


def snapshot_name(update: int) -> str:
    return f"update-{update:08d}"


def update_of(name: str) -> int | None:
    """Updates that are done in the snapshot of this name; None where it is no snapshot's name."""
    match = _NAME.match(name)
    return int(match[1]) if match and snapshot_name(int(match[1])) == name else None


@dataclass(frozen=True)
class Snapshot:
    """A snapshot whose files have been found whole."""

    path: Path
    state: dict[str, Any]
    update: int
    """Updates of the run that are done in it."""

    def tensors(self, wanted: Mapping[str, Kind] | None = None) -> dict[str, np.ndarray]:
        """`wanted` tensors, compared by shape and type before they are read; or all."""
        try:
            return read_tensors(self.path / TENSORS, wanted)
        except TensorsError as error:
            raise _as_snapshot_error(error) from error

    def inference_tensors(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        """Weights by parameter name, as validation and export use them: the moving average where the run keeps one.

        `shapes` are those of the model, and are compared before anything is read.
        """
        path = self.path / TENSORS
        try:
            found = read_kinds(path)
            keys = {name: f"{'ema' if f'ema/{name}' in found else 'weights'}/{name}" for name in shapes}
            wanted = {
                keys[name]: Kind(shape, found[keys[name]].dtype if keys[name] in found else "float32")
                for name, shape in shapes.items()
            }
            tensors = read_tensors(path, wanted, others_too=True)
        except TensorsError as error:
            raise _as_snapshot_error(error) from error
        return {name: tensors[key] for name, key in keys.items()}


def _as_snapshot_error(error: TensorsError) -> SnapshotError:
    kind = OtherTrainingError if isinstance(error, OtherModelError) else SnapshotError
    return kind(str(error))


def write_snapshot(
    folder: Path, update: int, tensors: Mapping[str, np.ndarray], state: Mapping[str, Any]
) -> None:
    """Fills an empty folder, and forces it to the disk."""
    text = json.dumps(dict(state), indent=1).encode()
    digests = {
        TENSORS: write_synced(folder / TENSORS, encode(tensors)),
        STATE: write_synced(folder / STATE, [text]),
    }
    manifest = {"format": FORMAT, "update": update, "sha256": digests}
    write_synced(folder / MANIFEST, [json.dumps(manifest, indent=1).encode()])
    sync_folder(folder)


def open_snapshot(path: Path) -> Snapshot:
    """Checks every file against the manifest."""
    try:
        manifest = _read_json(path / MANIFEST)
        digests = dict(manifest["sha256"])
        if manifest["format"] != FORMAT or set(digests) != {TENSORS, STATE}:
            raise SnapshotError(f"{path}: format {manifest['format']}, but this version reads {FORMAT}")
        named = update_of(path.name)
        if named is not None and named != manifest["update"]:
            raise SnapshotError(
                f"{path}: it is the snapshot of update {manifest['update']} under another name"
            )
        for name, digest in digests.items():
            if sha256_of(path / name) != digest:
                raise SnapshotError(f"{path / name}: the checksum is wrong, the file was damaged or cut off")
        state = _read_json(path / STATE)
        update = int(manifest["update"])
    except OSError as error:
        raise SnapshotError(f"{path}: {os.path.basename(error.filename or '')}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SnapshotError(f"{path}: its manifest or state is damaged ({error!r:.200})") from error
    return Snapshot(path, state, update)


def _read_json(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    if size > MAX_JSON_BYTES:
        raise ValueError(f"{path.name} has {size} bytes")
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} holds no object")
    return content
