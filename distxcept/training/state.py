"""All variables that an update changes: what a snapshot holds, and what ranks must agree on.

Each variable is a flat pack (packs.py). Snapshots, exports and people see tensors by name: `read` and `write` translate.
"""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from distxcept.batching import MAX_PACK_BYTES
from distxcept.checkpoint.tensors import Kind
from distxcept.engines import Engine
from distxcept.model.initial import initial_value
from distxcept.model.layout import Parameter
from distxcept.model.network import Described
from distxcept.model.packs import Pack, make_pack, pack_trained, split_all
from distxcept.model.precision import Precision

INITIAL_LOSS_SCALE = 2.0**15


class State:
    """Weights (trained, frozen, moving statistics), optimizer slots, moving average, counters."""

    def __init__(
        self,
        engine: Engine,
        model: Described,
        trained: Sequence[Parameter],
        slot_names: tuple[str, ...],
        *,
        norms: Sequence[str] = (),
        seed: int,
        precision: Precision,
        ema: bool,
        weights: dict[str, np.ndarray] | None = None,
    ):
        """Eager. `norms` are the layers whose moving statistics change. `weights` replaces initial values by name."""
        self.engine, self._dtype = engine, precision.numpy
        given = weights or {}
        values = {
            p.name: given[p.name].astype(self._dtype)
            if p.name in given
            else initial_value(p, seed, self._dtype)
            for p in model.parameters
        }
        by_name = {p.name: p for p in model.parameters}
        moving = [by_name[f"{norm}/moving_{kind}"] for norm in norms for kind in ("mean", "variance")]
        changed = {p.name for p in (*trained, *moving)}
        fixed = [p for p in model.parameters if p.name not in changed]
        number_bytes = np.dtype(self._dtype).itemsize
        self.packs = pack_trained(trained, number_bytes=number_bytes, max_bytes=MAX_PACK_BYTES)
        """Of the trained weights."""
        self.moving = [make_pack("moving", moving)] if moving else []
        """Of the moving statistics: none or one."""
        self.fixed = [make_pack("fixed", fixed)] if fixed else []
        """Of everything that an update leaves alone: none or one."""

        def variables(kind: str, packs: Sequence[Pack], *, zero: bool = False) -> list[tf.Variable]:
            return [
                engine.variable(
                    np.zeros(pack.elements, self._dtype) if zero else pack.to_numpy(values, self._dtype),
                    f"{kind}_{pack.name}",
                )
                for pack in packs
            ]

        self.weights = variables("weights", self.weight_packs)
        """One for each of `weight_packs`: the trained ones come first."""
        self.slots = {slot: variables(slot, self.packs, zero=True) for slot in slot_names}
        self.ema = variables("ema", self.packs) if ema else []
        self.applied = engine.variable(np.zeros((), np.int64), "applied")
        """Updates that changed the weights. Skipped ones do not count."""
        self.completed = engine.variable(np.zeros((), np.int64), "completed")
        """As `applied`, but counted after the weights have changed. A snapshot needs only one of them."""
        scale = INITIAL_LOSS_SCALE if precision.loss_scaling else 1.0
        self.loss_scale = engine.variable(np.asarray(scale, self._dtype), "loss_scale")
        self.good_updates = engine.variable(np.zeros((), np.int64), "good_updates")
        """Applied updates since the loss scale last changed."""

    @property
    def weight_packs(self) -> list[Pack]:
        return [*self.packs, *self.moving, *self.fixed]

    def _packed(self) -> Iterator[tuple[str, Pack, tf.Variable]]:
        """Every pack with its variable and the prefix of its tensors' names."""
        for prefix, packs, variables in (
            ("weights", self.weight_packs, self.weights),
            *((f"slots/{slot}", self.packs, of_slot) for slot, of_slot in self.slots.items()),
            ("ema", self.packs if self.ema else [], self.ema),
        ):
            for pack, variable in zip(packs, variables, strict=True):
                yield prefix, pack, variable

    def _counters(self) -> dict[str, tf.Variable]:
        counters = {"applied": self.applied, "loss_scale": self.loss_scale, "good_updates": self.good_updates}
        return {f"counters/{name}": variable for name, variable in counters.items()}

    def variables(self) -> list[tf.Variable]:
        packed = [variable for _, _, variable in self._packed()]
        return [*packed, *self._counters().values(), self.completed]

    def kinds(self) -> dict[str, Kind]:
        """Shape and type of every tensor of a snapshot."""
        number = np.dtype(self._dtype).name
        kinds = {
            f"{prefix}/{p.name}": Kind(tuple(p.shape), number)
            for prefix, pack, _ in self._packed()
            for p in pack.parameters
        }
        return kinds | {name: Kind((), v.dtype.name) for name, v in self._counters().items()}

    def read(self) -> dict[str, np.ndarray]:
        """Eager. A consistent copy of everything by name, from the first local replica."""
        values: dict[str, np.ndarray] = {}
        for prefix, pack, variable in self._packed():
            tensors = pack.from_numpy(self.engine.copies(variable)[0])
            values |= {f"{prefix}/{name}": value for name, value in tensors.items()}
        return values | {name: self.engine.copies(v)[0] for name, v in self._counters().items()}

    def write(self, values: dict[str, np.ndarray]) -> None:
        """Eager. What `read` returned, or a snapshot holds."""
        for prefix, pack, variable in self._packed():
            tensors = {p.name: values[f"{prefix}/{p.name}"] for p in pack.parameters}
            variable.assign(pack.to_numpy(tensors, self._dtype))
        for name, variable in self._counters().items():
            variable.assign(values[name])
        self.completed.assign(values["counters/applied"])

    def is_consistent(self) -> bool:
        """Eager. Whether no local replica stopped in the middle of an update, or is one behind."""
        counts = [*self.engine.copies(self.applied), *self.engine.copies(self.completed)]
        return len({int(count) for count in counts}) == 1

    def read_inference(self) -> dict[str, np.ndarray]:
        """Eager. The weights that validation and export use: the moving average where there is one."""
        values: dict[str, np.ndarray] = {}
        for pack, variable in zip(self.weight_packs, self._inference_variables(), strict=True):
            values |= pack.from_numpy(self.engine.copies(variable)[0])
        return values

    def inference_weights(self) -> dict[str, tf.Tensor]:
        """Traced, replica context. As `read_inference`."""
        variables = self._inference_variables()
        return split_all(self.weight_packs, [tf.convert_to_tensor(v) for v in variables])

    def _inference_variables(self) -> list[tf.Variable]:
        return [*self.ema, *self.weights[len(self.ema) :]]

    def digests(self) -> list[bytes]:
        """Eager. A SHA-256 of all variables for each local replica."""
        digests = [hashlib.sha256() for _ in self.engine.local_replicas]
        for variable in self.variables():
            for digest, copy in zip(digests, self.engine.copies(variable), strict=True):
                digest.update(copy.tobytes())
        return [digest.digest() for digest in digests]
