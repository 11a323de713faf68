"""A model as a snapshot holds it: its weights, and what the run's config says of how to feed it. No TensorFlow.

Only numbers and names are read from files; the model is built by code.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from distxcept.checkpoint.names import Found, find_snapshot
from distxcept.checkpoint.snapshot import Snapshot, SnapshotError
from distxcept.config.load import load_config
from distxcept.config.schema import Config
from distxcept.errors import ConfigError
from distxcept.model.layout import Layout


@dataclass(frozen=True)
class Trained:
    snapshot: Snapshot
    config: Config
    class_names: tuple[str, ...]
    """As many as the model has outputs."""
    run_folder: Path | None = None
    """None where the snapshot does not lie in a run folder."""
    passed_over: tuple[str, ...] = ()
    """Why newer snapshots were not taken."""

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self.config.model, len(self.class_names))

    @property
    def batch(self) -> int:
        """Images at once that the training took too."""
        batch = self.config.batch
        return batch.virtual if batch.micro == "auto" else batch.micro

    def weights(self) -> dict[str, np.ndarray]:
        """By parameter name; the moving average where the run keeps one."""
        try:
            return self.snapshot.inference_tensors({p.name: p.shape for p in self.layout.parameters})
        except SnapshotError as error:
            raise ConfigError(f"{error}; give the config that it was trained with") from error


def find_trained(name: str, *, config_file: str | None = None, overrides: tuple[str, ...] = ()) -> Trained:
    """`name` is that of a run or of a snapshot, as in checkpoint/names.py."""
    found = find_snapshot(name)
    config = config_of(name, found, config_file, overrides)
    saved = [str(name) for name in found.snapshot.state.get("class_names") or []]
    names = output_names(config.model.classes, saved)
    return Trained(found.snapshot, config, names, found.run_folder, found.passed_over)


def config_of(name: str, found: Found, config_file: str | None, overrides: tuple[str, ...] = ()) -> Config:
    path = config_file or (found.run_folder and found.run_folder / "config.yaml")
    if not path:
        raise ConfigError(f"{name} does not lie in a run folder; give its config with --config FILE")
    return load_config(str(path), list(overrides))


def output_names(classes: int | str, saved: list[str]) -> tuple[str, ...]:
    """A name for every output; one that no class of the data has trained is called by its number."""
    wanted = len(saved) if classes == "auto" else int(classes)
    if not wanted:
        raise ConfigError(
            "the snapshot does not tell its class names; set model.classes in the file given with --config"
        )
    return tuple([*saved, *(f"class {number}" for number in range(len(saved), wanted))][:wanted])
