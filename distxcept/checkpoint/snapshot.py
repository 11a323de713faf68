"""A snapshot: a folder with tensors (safetensors), state (JSON) and a manifest with the SHA-256 of both.

    checkpoints/update-00001200/  tensors.safetensors · state.json · manifest.json
    checkpoints/best.json         names the best snapshot so far

It is written under another name, synced to the disk and renamed, so it is there whole or not at all. Nothing in it is
ever executed: no pickle, and tensors only go into variables that our own code made.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

FORMAT = 1
TENSORS, STATE, MANIFEST, BEST = "tensors.safetensors", "state.json", "manifest.json", "best.json"
_NAME = re.compile(r"^update-(\d{8,})$")


class SnapshotError(Exception):
    """This snapshot cannot be used; the text says why."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot whose files have been found whole."""

    path: Path
    state: dict[str, Any]

    @property
    def update(self) -> int:
        """Updates of the run that are done in it."""
        return int(self.path.name.split("-")[1])

    def tensors(self) -> dict[str, np.ndarray]:
        try:
            return load_file(self.path / TENSORS)
        except (OSError, SafetensorError) as error:
            raise SnapshotError(f"{self.path / TENSORS}: {error}") from error


def save_snapshot(
    folder: Path,
    update: int,
    tensors: Mapping[str, np.ndarray],
    state: Mapping[str, Any],
    *,
    keep: int,
    best: bool,
) -> Path:
    """Writes the snapshot after `update` updates, then drops what is neither among the newest `keep` nor the best."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"update-{update:08d}"
    scratch = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
    try:
        save_file({name: np.asarray(value, order="C") for name, value in tensors.items()}, scratch / TENSORS)
        (scratch / STATE).write_text(json.dumps(dict(state), indent=1), encoding="utf-8")
        digests = {name: _sha256(scratch / name) for name in (TENSORS, STATE)}
        manifest = {"format": FORMAT, "update": update, "sha256": digests}
        (scratch / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        for name in (TENSORS, STATE, MANIFEST):
            _sync(scratch / name)
        _sync(scratch)
        # The same update is saved twice when a run ends right after a periodic save; the newer one wins.
        if target.exists():
            shutil.rmtree(target)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _sync(folder)
    if best:
        _replace_text(folder / BEST, json.dumps({"snapshot": target.name}))
    prune(folder, keep)
    return target


def prune(folder: Path, keep: int) -> None:
    best = best_name(folder)
    for path in _candidates(folder)[keep:]:
        if path.name != best:
            shutil.rmtree(path)


def best_name(folder: Path) -> str | None:
    try:
        name = json.loads((folder / BEST).read_text(encoding="utf-8"))["snapshot"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) and _NAME.match(name) else None


def newest_snapshot(folder: Path) -> tuple[Snapshot | None, list[str]]:
    """The newest snapshot that is whole, and why newer ones were passed over."""
    passed_over: list[str] = []
    for path in _candidates(folder):
        try:
            return open_snapshot(path), passed_over
        except SnapshotError as error:
            passed_over.append(str(error))
    return None, passed_over


def open_snapshot(path: Path) -> Snapshot:
    """Checks every file against the manifest."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        digests = dict(manifest["sha256"])
        if manifest["format"] != FORMAT or set(digests) != {TENSORS, STATE}:
            raise SnapshotError(f"{path}: format {manifest['format']}, but this version reads {FORMAT}")
        for name, digest in digests.items():
            if _sha256(path / name) != digest:
                raise SnapshotError(f"{path / name}: the checksum is wrong, the file was damaged or cut off")
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SnapshotError(f"{path}: {error}") from error
    return Snapshot(path, state)


def _candidates(folder: Path) -> list[Path]:
    """Snapshot folders, newest first."""
    if not folder.is_dir():
        return []
    named = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.match(path.name))]
    return [path for _, path in sorted(named, reverse=True)]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace_text(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.writing")
    scratch.write_text(text, encoding="utf-8")
    _sync(scratch)
    scratch.replace(path)
