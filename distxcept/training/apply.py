"""The last step of an update: from the sums of all replicas to new weights, slots, averages and statistics.

    for each pack of trained weights:                  clip, decay, optimizer, pruning; slots; moving average
    the pack of moving statistics:                     one step towards the mean of the update
    each new value = new if the update counts, else old

Every replica holds the same sums here and assigns the same values by itself. The decision stays on the device: an
ordinary branch would make the host wait until the gradients are known.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import tensorflow as tf

from distxcept.config.schema import Config
from distxcept.model.packs import Pack
from distxcept.training.optimizer import Optimizer
from distxcept.training.pruning import prune
from distxcept.training.state import State

SCALE_GROWTH_UPDATES = 2000


class Applier:
    def __init__(
        self, config: Config, state: State, *, momenta: Mapping[str, float], pruned: Collection[str]
    ):
        """`momenta` are those of batch-norm layers that have one of their own; `pruned` are names of weights."""
        self.config, self.state, self.pruned = config, state, pruned
        self.optimizer = Optimizer(config.optimizer)
        usual = config.model.batchnorm_momentum
        self.momenta: dict[str, float] = {
            p.name: momenta.get(p.name.rpartition("/")[0], usual)
            for pack in state.moving
            for p in pack.parameters
        }

    def __call__(
        self, counts: tf.Tensor, gradients: Sequence[tf.Tensor], statistics: tf.Tensor, norm: tf.Tensor,
        factor: tf.Tensor, rate: tf.Tensor, prune_to: tf.Tensor,
    ) -> None:  # fmt: skip
        """Traced, replica context. `counts` says whether the update changes anything. `factor` makes the gradient of the
        mean loss of each sum, and `norm` is the norm of that gradient. `statistics` are means over the samples."""
        clip_norm = self.config.optimizer.clip_norm
        if clip_norm is not None:
            factor *= tf.minimum(tf.ones_like(norm), clip_norm / norm)
        applied = self.state.applied.assign_add(tf.cast(counts, tf.int64))
        time = tf.cast(applied, rate.dtype)
        written: list = [applied]  # first, so that it tells whether anything was changed
        for number, (pack, gradient) in enumerate(zip(self.state.packs, gradients, strict=True)):
            # In parallel they would keep several copies of all weights in memory.
            with tf.control_dependencies(written):
                written = self._pack(counts, number, pack, gradient * factor, rate, time, prune_to)
        for number, pack in enumerate(self.state.moving, start=len(self.state.packs)):
            written.append(self._move_statistics(counts, pack, self.state.weights[number], statistics))
        with tf.control_dependencies(written):
            self.state.completed.assign(applied)

    def _pack(self, counts, number, pack, gradient, rate, time, prune_to) -> list:
        """Traced, replica context. Assigns the new weights of a pack, its slots and its moving average."""
        state = self.state
        variables = {slot: of_slot[number] for slot, of_slot in state.slots.items()}
        weight = tf.convert_to_tensor(state.weights[number])
        slots = {slot: tf.convert_to_tensor(variable) for slot, variable in variables.items()}
        new, new_slots = self.optimizer.step(pack, weight, gradient, slots, rate=rate, time=time)
        pruned = [p.name for p in pack.parameters if p.name in self.pruned]
        if pruned:
            new = _prune(pack, pruned, weight, new, prune_to)
        written = [state.weights[number].assign(tf.where(counts, new, weight))]
        for slot, variable in variables.items():
            written.append(variable.assign(tf.where(counts, new_slots[slot], slots[slot])))
        if state.ema:
            old = tf.convert_to_tensor(state.ema[number])
            average = self._average(pack, pruned, old, new, time)
            written.append(state.ema[number].assign(tf.where(counts, average, old)))
        return written

    def _average(self, pack: Pack, pruned: list[str], old, weight, time) -> tf.Tensor:
        """The average follows closely at first, so that a short run is not dominated by its start."""
        decay = tf.minimum(tf.constant(self.config.optimizer.ema, time.dtype), (1.0 + time) / (10.0 + time))
        average = decay * old + (1.0 - decay) * weight
        if not pruned:
            return average
        # Else the average of a pruned weight would only come near to zero.
        zero = tf.logical_and(weight == 0, tf.constant(_mask(pack, pruned)))
        return tf.where(zero, tf.zeros_like(average), average)

    def _move_statistics(self, counts, pack: Pack, variable: tf.Variable, statistics: tf.Tensor):
        """Traced, replica context. What was assigned."""
        old = tf.convert_to_tensor(variable)
        momentum: tf.Tensor | float = self.config.model.batchnorm_momentum
        if set(self.momenta.values()) != {momentum}:
            own = {p.name: np.full(p.shape, self.momenta[p.name]) for p in pack.parameters}
            momentum = tf.constant(pack.to_numpy(own, old.dtype.as_numpy_dtype))
        new = momentum * old + (1.0 - momentum) * statistics
        return variable.assign(tf.where(counts, new, old))


def _prune(pack: Pack, names: list[str], old: tf.Tensor, new: tf.Tensor, prune_to: tf.Tensor) -> tf.Tensor:
    """Traced. The pack with these kernels pruned; the others as they are."""
    before, after = pack.split(old), pack.split(new)
    return pack.join(after | {name: prune(before[name], after[name], prune_to) for name in names})


def _mask(pack: Pack, names: list[str]) -> np.ndarray:
    """True for every element of these tensors."""
    return pack.to_numpy({p.name: np.full(p.shape, p.name in names) for p in pack.parameters}, np.bool_)


def adapt_loss_scale(state: State, finite: tf.Tensor, complete: tf.Tensor) -> None:
    """Halves the scale after an overflow, doubles it after many updates without one; not if a rank's part is missing."""
    scale, good = tf.convert_to_tensor(state.loss_scale), tf.convert_to_tensor(state.good_updates)
    grow = tf.logical_and(finite, good + 1 >= SCALE_GROWTH_UPDATES)
    raised = tf.where(grow, scale * 2.0, scale)
    adapted = tf.where(finite, raised, tf.maximum(scale / 2.0, 1.0))
    counted = tf.where(tf.logical_or(grow, ~finite), tf.zeros_like(good), good + 1)
    state.loss_scale.assign(tf.where(complete, adapted, scale))
    state.good_updates.assign(tf.where(complete, counted, good))
