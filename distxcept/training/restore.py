"""Going on where a run stopped: the chief reads, everybody else gets it from the chief."""

import json
from pathlib import Path
from typing import Any

from distxcept.checkpoint.compatibility import differences
from distxcept.checkpoint.names import find_snapshot
from distxcept.checkpoint.snapshot import OtherTrainingError, Snapshot, SnapshotError
from distxcept.checkpoint.store import Store
from distxcept.errors import ConfigError
from distxcept.training.build import Training
from distxcept.training.events import Observer
from distxcept.training.progress import Progress


def restore(training: Training, run_folder: Path, observer: Observer, allow_config_change: bool) -> Progress:
    """Eager, on every rank. Fills the variables from the snapshot that `run.resume` asks for, if there is one."""
    message: dict[str, Any] = {}
    if training.engine.is_chief:
        try:
            message = _Restoring(training, run_folder, observer, allow_config_change).run()
        except (ConfigError, SnapshotError) as error:
            message = {"error": str(error)}
        except OSError as error:
            message = {"error": f"{run_folder}: {error}"}
    message = json.loads(training.engine.exchange(json.dumps(message).encode())[0])
    if "error" in message:
        raise ConfigError(message["error"])
    training.engine.broadcast(training.update.state.variables())
    return _progress(message["progress"]) if message else Progress()


def _progress(saved: dict[str, Any]) -> Progress:
    try:
        return Progress.from_json(saved)
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"the snapshot's progress cannot be read ({error!r}); take another snapshot"
        ) from error


class _Restoring:
    """On the chief. What it decides it tells the observer: which snapshot was taken, which were not, and why."""

    def __init__(self, training: Training, run_folder: Path, observer: Observer, allow_config_change: bool):
        self.training, self.observer = training, observer
        self.allow_config_change = allow_config_change
        self.store = Store(run_folder)
        self.passed_over: list[str] = []

    def run(self) -> dict[str, Any]:
        self.store.clean()
        resume = self.training.config.run.resume
        if resume == "never":
            taken = None
            self.observer.begins_anew()
        elif resume == "auto":
            taken = self._newest()
        else:
            taken = self._take(find_snapshot(resume).snapshot)
        for reason in self.passed_over:
            self.observer.happened("snapshot_passed_over", f"not used: {reason}")
        for moved in self.store.go_on_from(taken.update if taken else 0):
            self.observer.happened("snapshot_set_aside", moved)
        if taken is None:
            return {}
        self.observer.happened(
            "resumed", f"going on from {taken.path}, update {taken.update}", update=taken.update
        )
        return {"progress": taken.state.get("progress")}

    def _newest(self) -> Snapshot | None:
        """The newest that is whole and fits. Where none of those that there are will do, a new start would hide a loss."""
        for snapshot in self.store.whole(self.passed_over):
            try:
                return self._take(snapshot)
            except SnapshotError as error:
                self.passed_over.append(str(error))
        if self.passed_over:
            raise ConfigError(
                f"no snapshot of this run can be used: {'; '.join(self.passed_over)}; to start anew, set run.resume=never "
                "or another run.name"
            )
        return None

    def _take(self, snapshot: Snapshot) -> Snapshot:
        """Fills the variables. ConfigError if the training is another one; SnapshotError if only this snapshot is."""
        changed = differences(snapshot.state.get("identity") or {}, self.training.identity)
        if changed and not self.allow_config_change:
            raise ConfigError(
                f"{snapshot.path} was trained with another config ({'; '.join(changed)}); use that config, another "
                "run.name, or --allow-config-change"
            )
        try:
            tensors = snapshot.tensors(self.training.update.state.kinds())
        except OtherTrainingError as error:
            if self.training.config.run.resume != "auto":
                raise ConfigError(f"run.resume: {error}; use the config it was trained with") from error
            raise
        self.training.update.state.write(tensors)
        return snapshot
