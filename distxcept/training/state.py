"""All variables that an update changes, by name: what a snapshot holds and what ranks must agree on."""

import hashlib

import numpy as np
import tensorflow as tf

from distxcept.engines import Engine
from distxcept.errors import PeerLostError
from distxcept.model.initial import initial_value
from distxcept.model.layout import Parameter
from distxcept.model.network import Described
from distxcept.model.precision import Precision

INITIAL_LOSS_SCALE = 2.0**15


class State:
    """Weights (frozen ones and moving statistics among them), optimizer slots, moving average, counters."""

    def __init__(
        self,
        engine: Engine,
        model: Described,
        trained: list[Parameter],
        slot_names: tuple[str, ...],
        *,
        seed: int,
        precision: Precision,
        ema: bool,
        weights: dict[str, np.ndarray] | None = None,
    ):
        """Eager. `weights` replaces initial values by name."""
        self.engine = engine
        dtype = precision.numpy
        given = weights or {}
        values = {
            p.name: given[p.name].astype(dtype) if p.name in given else initial_value(p, seed, dtype)
            for p in model.parameters
        }
        self.weights = {name: engine.variable(value, name) for name, value in values.items()}
        self.slots = {
            slot: {p.name: engine.variable(np.zeros(p.shape, dtype), p.name) for p in trained}
            for slot in slot_names
        }
        self.ema = {p.name: engine.variable(values[p.name], p.name) for p in trained} if ema else {}
        self.applied = engine.variable(np.zeros((), np.int64), "applied")
        """Updates that changed the weights; skipped ones do not count."""
        scale = INITIAL_LOSS_SCALE if precision.loss_scaling else 1.0
        self.loss_scale = engine.variable(np.asarray(scale, dtype), "loss_scale")
        self.good_updates = engine.variable(np.zeros((), np.int64), "good_updates")
        """Applied updates since the loss scale last changed."""

    def variables(self) -> dict[str, tf.Variable]:
        named = {f"weights/{name}": v for name, v in self.weights.items()}
        for slot, of_slot in self.slots.items():
            named |= {f"slots/{slot}/{name}": v for name, v in of_slot.items()}
        named |= {f"ema/{name}": v for name, v in self.ema.items()}
        scalars = {"applied": self.applied, "loss_scale": self.loss_scale, "good_updates": self.good_updates}
        return named | {f"counters/{name}": v for name, v in scalars.items()}

    def read(self) -> dict[str, np.ndarray]:
        """A consistent copy of everything, from the first local replica."""
        return {name: self.engine.copies(variable)[0] for name, variable in self.variables().items()}

    def write(self, values: dict[str, np.ndarray]) -> None:
        for name, variable in self.variables().items():
            variable.assign(values[name])

    def inference_weights(self) -> dict[str, tf.Variable]:
        """What validation and export use: the moving average where there is one."""
        return {**self.weights, **self.ema}

    def check_equal(self, when: str) -> None:
        """Raises unless every replica of every rank holds the same bits. Every rank has to call it."""
        digests = [hashlib.sha256() for _ in self.engine.local_replicas]
        for variable in self.variables().values():
            for digest, copy in zip(digests, self.engine.copies(variable), strict=True):
                digest.update(copy.tobytes())
        everywhere = b"".join(self.engine.exchange(b"".join(digest.digest() for digest in digests)))
        size = hashlib.sha256().digest_size
        found = [everywhere[i : i + size] for i in range(0, len(everywhere), size)]
        differing = [k for k, digest in enumerate(found) if digest != found[0]]
        if differing:
            raise PeerLostError(
                f"{when}, replica{'s' * (len(differing) > 1)} {', '.join(map(str, differing))} "
                "no longer hold the weights of replica 0; start again from the last snapshot, and check these devices"
            )
