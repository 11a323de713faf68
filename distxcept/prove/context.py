"""What every section of `distxcept prove` gets."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distxcept.checkpoint.snapshot import SnapshotError
from distxcept.checkpoint.store import Store
from distxcept.config.yaml_text import dump_yaml
from distxcept.prove.children import Children
from distxcept.prove.machine import Machine


@dataclass(frozen=True)
class Context:
    machine: Machine
    quick: bool
    folder: Path
    """For configs, run folders and logs of the children; one folder a section."""
    children: Children
    tick: Callable[[], None] = lambda: None
    """Tells that a step of the section has ended."""

    def folder_of(self, section: str) -> Path:
        folder = self.folder / section
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def limit(self, quick: float, full: float) -> float:
        """Seconds that a child may take; the deadline of the whole proof may end it earlier."""
        return quick if self.quick else full


def write_config(path: Path, tree: Mapping[str, Any]) -> Path:
    path.write_text(dump_yaml(dict(tree)), encoding="utf-8")
    return path


def last_tensors(run_folder: Path) -> dict[str, np.ndarray] | None:
    """Of the newest whole snapshot; None if there is none."""
    with suppress(SnapshotError, OSError, ValueError):
        snapshot = Store(run_folder).choose().snapshot
        return None if snapshot is None else snapshot.tensors()
    return None


def answers(stdout: str) -> list[dict[str, Any]]:
    """The JSON objects among the lines that a child has printed."""
    found = []
    for line in stdout.splitlines():
        with suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                found.append(answer)
    return found
