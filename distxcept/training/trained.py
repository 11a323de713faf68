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
from distxcept.memory.planning import own_micro
from distxcept.model.layout import Layout
from distxcept.model.network import GIVEN, MakeNetwork, Network


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
    make_network: MakeNetwork | None = None
    """Of a model given from Python."""

    @cached_property
    def network(self) -> Network:
        """The model, ready to run. This imports TensorFlow."""
        if self.make_network is None:
            from distxcept.model.xception import Xception

            return Xception.of(self.config.model, len(self.class_names))
        network = self.make_network(self.config)
        saved = given_model(self.snapshot)
        if network.identity[GIVEN] != saved:
            raise ConfigError(
                f"{self.snapshot.path} was trained with the model {saved}, and this one is {network.identity[GIVEN]}; "
                f"give the model that it was trained with: model-{saved}.json in the run folder describes it"
            )
        return network

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self.config.model, len(self.class_names))

    @property
    def batch(self) -> int:
        """Images at once that the training took too."""
        return own_micro(self.config)

    def weights(self) -> dict[str, np.ndarray]:
        """By parameter name; the moving average where the run keeps one."""
        try:
            described = self.layout if self.make_network is None else self.network
            return self.snapshot.inference_tensors({p.name: p.shape for p in described.parameters})
        except SnapshotError as error:
            raise ConfigError(f"{error}; give the config that it was trained with") from error


def find_trained(
    name: str,
    *,
    config_file: str | None = None,
    overrides: tuple[str, ...] = (),
    make_network: MakeNetwork | None = None,
) -> Trained:
    """`name` is that of a run or of a snapshot, as in checkpoint/names.py."""
    found = find_snapshot(name)
    given = given_model(found.snapshot)
    if given and make_network is None:
        raise ConfigError(
            f"{name} was trained from Python with a model of its own ({given}), which no file holds; use it from "
            f"Python, with that model: distxcept.Run({name!r}, model=...)"
        )
    if make_network is not None and not given:
        raise ConfigError(f"{name} was trained as Xception, from its config; leave out model=")
    config = config_of(name, found, config_file, overrides)
    saved = [str(name) for name in found.snapshot.state.get("class_names") or []]
    names = output_names(config.model.classes, saved)
    return Trained(found.snapshot, config, names, found.run_folder, found.passed_over, make_network)


def given_model(snapshot: Snapshot) -> str | None:
    """Digest of the model that a training was given from Python; None where the config describes it."""
    identity = snapshot.state.get("identity")
    given = identity.get(GIVEN) if isinstance(identity, dict) else None
    return None if given is None else str(given)


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
