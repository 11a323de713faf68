"""Whether a run may go on with a config: what defines the training must be the same, the rest may change."""

import hashlib
import json
from typing import Any

from distxcept.config.schema import Config

# Keys that change when and how fast things happen, never the updates themselves.
HARMLESS = (
    "run.name", "run.dir", "run.resume", "run.epochs", "run.updates", "run.log_every", "run.evaluate_every",
    "run.early_stopping", "run.telemetry_every", "run.writers", "run.max_nonfinite_updates", "model.weights",
    "data.validation", "data.evaluate", "data.on_bad_image", "data.max_bad_fraction", "data.cache",
    "data.host_memory", "batch.micro", "engine", "memory", "checkpoint",
)  # fmt: skip
# Exceptions to the above: they alter what is computed.
HARMFUL = ("engine.compression", "engine.reduction", "engine.lanes", "engine.tf32")
# Keys that came later are left out where they change nothing, so that older runs keep their identity.
ABSENT_MEANS = {
    "engine.tf32": "on",
    "data.augment.autoaugment": False,
    "data.augment.trivialaugment": False,
}


def training_identity(config: Config, data_digest: str) -> dict[str, Any]:
    """Every key that has a say in the weights, flat, with the digest of the training data."""
    flat: dict[str, Any] = {"data": data_digest}
    _flatten("", config.model_dump(mode="json"), flat)
    # A source is known by its content: the same files may lie in another place after a move.
    flat = {key: value for key, value in flat.items() if not key.startswith("data.train.")}
    # A cosine ends with the run, so there its length is part of the training.
    if config.optimizer.schedule.kind == "cosine":
        flat["schedule ends at"] = [config.run.epochs, config.run.updates]
    # An ordered reduction has it off in any case.
    if config.engine.allows_tf32 or config.engine.reduction == "ordered":
        del flat["engine.tf32"]
    return {key: value for key, value in flat.items() if not _harmless(key)}


def identity_digest(identity: dict[str, Any]) -> str:
    """Short, to compare two runs at a glance."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def differences(saved: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Keys that differ, as `key: saved → wanted`."""
    keys = sorted(saved.keys() | wanted.keys())
    pairs = {key: [one.get(key, ABSENT_MEANS.get(key)) for one in (saved, wanted)] for key in keys}
    return [f"{key}: {old} → {new}" for key, (old, new) in pairs.items() if old != new]


def _harmless(key: str) -> bool:
    def within(keys: tuple[str, ...]) -> bool:
        return any(key == one or key.startswith(f"{one}.") for one in keys)

    return within(HARMLESS) and not within(HARMFUL)


def _flatten(prefix: str, value: Any, into: dict[str, Any]) -> None:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            _flatten(f"{prefix}.{key}" if prefix else str(key), inner, into)
    else:
        into[prefix] = value
