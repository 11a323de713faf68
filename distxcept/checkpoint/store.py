"""The snapshots of a run: which there are, which is valid, and in which order a new one replaces an old one.

    checkpoints/update-00001200/   a snapshot (snapshot.py)
    checkpoints/latest.json        names the newest one that was completed
    checkpoints/best.json          names the best one so far
    checkpoints/.writing-…         being written; checkpoints/.removing-… being removed: never looked at
    set-aside/NAME-N               snapshots of updates that the run has gone back behind, damaged ones among them

A save is: write under another name → sync → rename → latest.json → best.json → remove what is too old. Whatever
operation is the last one before the end, the newest completed snapshot is whole, and the next start finds it.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distxcept.checkpoint.files import REMOVING, remove_folder, replace_synced, sync_folder
from distxcept.checkpoint.snapshot import (
    Snapshot,
    SnapshotError,
    open_snapshot,
    snapshot_name,
    update_of,
    write_snapshot,
)
from distxcept.checkpoint.tensors import encoded_bytes

LATEST, BEST = "latest.json", "best.json"
WRITING = ".writing-"
SPARE_BYTES = 1 << 20
"""Left free beside a snapshot: logs and metrics go on."""


@dataclass
class Choice:
    """The newest snapshot that is whole, and why others were passed over, newest first."""

    snapshot: Snapshot | None
    passed_over: list[str]


class Store:
    def __init__(self, run_folder: Path):
        self.run_folder = run_folder
        self.folder = run_folder / "checkpoints"

    def updates(self) -> list[int]:
        """Of all snapshots, newest first; whether they are whole is another question."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        found = (update_of(name) for name in names)
        return sorted((update for update in found if update is not None), reverse=True)

    def path(self, update: int) -> Path:
        return self.folder / snapshot_name(update)

    def save(
        self,
        update: int,
        tensors: Mapping[str, np.ndarray],
        state: Mapping[str, Any],
        *,
        keep: int,
        best: bool = False,
    ) -> Path:
        """Writes the snapshot after `update` updates, then removes what is neither among the newest `keep` nor the best.

        OSError or SnapshotError if it cannot; the older snapshots are then as they were.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._check_space(encoded_bytes(tensors))
        if not self._is_whole(update):
            self._write(update, tensors, state)
        replace_synced(self.folder / LATEST, _pointer(update))
        if best:
            replace_synced(self.folder / BEST, _pointer(update))
        self.prune(keep, newest=update)
        return self.path(update)

    def prune(self, keep: int, newest: int) -> None:
        """`newest` is known to be whole; what claims to be newer is not counted."""
        kept = [update for update in self.updates() if update <= newest][:keep]
        for update in self.updates():
            if update not in (*kept, newest, self.best()) and update < newest:
                remove_folder(self.path(update))

    def latest(self) -> int | None:
        return _read_pointer(self.folder / LATEST)

    def best(self) -> int | None:
        return _read_pointer(self.folder / BEST)

    def whole(self, passed_over: list[str]) -> Iterator[Snapshot]:
        """Snapshots that are whole, newest first; `passed_over` is told why another one was not.

        All of them are looked at: a pointer may be older than the newest snapshot, or name one that is gone.
        """
        updates = self.updates()
        latest = self.latest()
        if latest is not None and latest not in updates:
            passed_over.append(f"{self.folder / LATEST} names {snapshot_name(latest)}, which is not there")
        for update in updates:
            try:
                snapshot = open_snapshot(self.path(update))
            except SnapshotError as error:
                passed_over.append(str(error))
            else:
                yield snapshot

    def choose(self) -> Choice:
        passed_over: list[str] = []
        return Choice(next(self.whole(passed_over), None), passed_over)

    def clean(self) -> None:
        """Removes what an earlier process left half done. Only for the one process that holds the run's lock."""
        if not self.folder.is_dir():
            return
        for name in os.listdir(self.folder):
            path = self.folder / name
            if name.startswith((WRITING, REMOVING)):
                shutil.rmtree(path, ignore_errors=True)
            elif name.startswith(".") and name.endswith(".writing"):
                path.unlink(missing_ok=True)

    def go_on_from(self, update: int) -> list[str]:
        """The run goes on after `update` (0: anew). Sets aside the snapshots beyond it, which belong to another course.

        Left in place, they would be taken for the newest at the next start.
        """
        moved = []
        for later in self.updates():
            if later > update:
                target = set_aside(self.run_folder, self.path(later))
                moved.append(f"{snapshot_name(later)} set aside in {target}")
        for pointer in (LATEST, BEST):
            named = _read_pointer(self.folder / pointer)
            if named is not None and named > update:
                (self.folder / pointer).unlink(missing_ok=True)
        return moved

    def _write(self, update: int, tensors: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        scratch = self.folder / f"{WRITING}{snapshot_name(update)}-{os.getpid()}"
        shutil.rmtree(scratch, ignore_errors=True)
        os.mkdir(scratch)
        try:
            write_snapshot(scratch, update, tensors, state)
            if self.path(update).exists():  # damaged, or it would have been kept
                remove_folder(self.path(update))
            os.rename(scratch, self.path(update))
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        sync_folder(self.folder)

    def _is_whole(self, update: int) -> bool:
        """A run computes an update once: a whole snapshot of it is never replaced, so it is never missing for a moment."""
        if not self.path(update).exists():
            return False
        try:
            open_snapshot(self.path(update))
        except SnapshotError:
            return False
        return True

    def _check_space(self, needed: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < needed + SPARE_BYTES:
            raise SnapshotError(
                f"{self.folder} has {free / 2**20:.1f} MiB free, and a snapshot needs {needed / 2**20:.1f} MiB; "
                "free some space, or lower checkpoint.keep"
            )


def _pointer(update: int) -> str:
    return json.dumps({"snapshot": snapshot_name(update)}) + "\n"


def _read_pointer(path: Path) -> int | None:
    """None where there is none, or none that can be read: it may be damaged like everything else."""
    try:
        name = json.loads(path.read_text(encoding="utf-8"))["snapshot"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return update_of(name) if isinstance(name, str) else None


def set_aside(run_folder: Path, path: Path) -> Path:
    """Moves a file or folder of a run to where nobody takes it for the run's own; returns its new name."""
    number, folder = 1, run_folder / "set-aside"
    folder.mkdir(exist_ok=True)
    while (target := folder / f"{path.name}-{number}").exists():
        number += 1
    os.rename(path, target)
    return target
