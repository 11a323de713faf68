"""Going on where a run stopped: the chief reads, everybody else gets it from the chief."""

import json
from pathlib import Path
from typing import Any

from distxcept.checkpoint.compatibility import differences, training_identity
from distxcept.checkpoint.snapshot import Snapshot, SnapshotError, newest_snapshot, open_snapshot
from distxcept.errors import ConfigError
from distxcept.training.build import Training
from distxcept.training.events import Observer
from distxcept.training.progress import Progress


def restore(training: Training, run_folder: Path, observer: Observer, allow_config_change: bool) -> Progress:
    """Eager, on every rank. Fills the variables from the snapshot that `run.resume` asks for, if there is one."""
    message: dict[str, Any] = {}
    if training.engine.is_chief:
        try:
            message = _read(training, run_folder, observer, allow_config_change)
        except ConfigError as error:
            message = {"error": str(error)}
    message = json.loads(training.engine.exchange(json.dumps(message).encode())[0])
    if "error" in message:
        raise ConfigError(message["error"])
    training.engine.broadcast(list(training.update.state.variables().values()))
    return Progress.from_json(message["progress"]) if message else Progress()


def _read(
    training: Training, run_folder: Path, observer: Observer, allow_config_change: bool
) -> dict[str, Any]:
    snapshot = _choose(training.config.run.resume, run_folder, observer)
    if snapshot is None:
        return {}
    changed = differences(
        snapshot.state["identity"], training_identity(training.config, training.data_digest)
    )
    if changed and not allow_config_change:
        raise ConfigError(
            f"{snapshot.path} was trained with another config ({'; '.join(changed)}); use that config, another run.name, "
            "or --allow-config-change"
        )
    try:
        tensors = snapshot.tensors()
    except SnapshotError as error:
        raise ConfigError(f"cannot go on: {error}") from error
    _check_shapes(training, snapshot, tensors)
    training.update.state.write(tensors)
    observer.happened(
        "resumed", f"going on from {snapshot.path}, update {snapshot.update}", update=snapshot.update
    )
    return {"progress": snapshot.state["progress"]}


def _choose(resume: str, run_folder: Path, observer: Observer) -> Snapshot | None:
    if resume == "never":
        return None
    if resume != "auto":
        try:
            return open_snapshot(Path(resume))
        except SnapshotError as error:
            raise ConfigError(f"run.resume: {error}") from error
    snapshot, passed_over = newest_snapshot(run_folder / "checkpoints")
    for reason in passed_over:
        observer.happened("snapshot_passed_over", f"not used: {reason}")
    return snapshot


def _check_shapes(training: Training, snapshot: Snapshot, tensors: dict) -> None:
    variables = training.update.state.variables()
    for name, variable in variables.items():
        found = tensors[name].shape if name in tensors else None
        if found != tuple(variable.shape):
            raise ConfigError(
                f"{snapshot.path} has {name} with shape {found}, but the model has {tuple(variable.shape)}: it belongs to "
                "another model or optimizer; use that config or another run.name"
            )
