"""The last step of an update: from the gradients of all replicas to new weights, slots, averages and statistics.

Every replica holds the same sums here and assigns the same values by itself.
"""

from collections.abc import Collection, Mapping, Sequence

import tensorflow as tf

from distxcept.config.schema import Config
from distxcept.model.layout import Parameter
from distxcept.training.optimizer import Optimizer
from distxcept.training.pruning import prune
from distxcept.training.state import State

SCALE_GROWTH_UPDATES = 2000


class Applier:
    def __init__(
        self,
        config: Config,
        state: State,
        trained: Sequence[Parameter],
        *,
        norms: Sequence[str],
        momenta: Mapping[str, float],
        pruned: Collection[str],
    ):
        """`norms` are those on batch statistics, `momenta` of those that have one of their own, `pruned` weights' names."""
        self.config, self.state, self.trained = config, state, trained
        self.norms, self.momenta, self.pruned = norms, momenta, pruned
        self.optimizer = Optimizer(config.optimizer)

    def __call__(self, weights, gradients, statistics, norm, factor, rate, prune_to) -> tf.Tensor:
        """Traced, replica context. `factor` makes the gradient of the mean loss of each sum; `norm` is of that gradient."""
        clip_norm = self.config.optimizer.clip_norm
        if clip_norm is not None:
            factor *= tf.minimum(tf.ones_like(norm), clip_norm / norm)
        applied = self.state.applied.assign_add(1)
        time = tf.cast(applied, rate.dtype)
        written: list = [applied]  # first, so that it tells whether anything was changed
        for parameter, gradient in zip(self.trained, gradients, strict=True):
            # One after the other: side by side they would hold several copies of all weights at once.
            with tf.control_dependencies(written):
                weight = weights[parameter.name]
                written = self._one(parameter, weight, gradient * factor, rate, time, prune_to)
        self._move_statistics(weights, statistics)
        return tf.constant(True)

    def _one(self, parameter, weight, gradient, rate, time, prune_to) -> list:
        """Traced, replica context. The new weight, its slots and its moving average; what was assigned."""
        name, state = parameter.name, self.state
        slots = {slot: tf.convert_to_tensor(of_slot[name]) for slot, of_slot in state.slots.items()}
        new, slots = self.optimizer.step(
            weight, gradient, slots, rate=rate, time=time, decays=parameter.decays
        )
        weight = prune(weight, new, prune_to) if name in self.pruned else new
        written = [state.weights[name].assign(weight)]
        for slot, value in slots.items():
            written.append(state.slots[slot][name].assign(value))
        if self.config.optimizer.ema is not None:
            # The average follows closely at first, so that a short run is not dominated by its start.
            decay = tf.minimum(
                tf.constant(self.config.optimizer.ema, time.dtype), (1.0 + time) / (10.0 + time)
            )
            average = decay * state.ema[name] + (1.0 - decay) * weight
            if name in self.pruned:  # the average would only come near to zero
                average = tf.where(weight == 0, tf.zeros_like(average), average)
            written.append(state.ema[name].assign(average))
        return written

    def _move_statistics(self, weights, statistics: tf.Tensor) -> None:
        if not self.norms:  # a frozen backbone
            return
        usual = self.config.model.batchnorm_momentum
        names = [f"{norm}/moving_{kind}" for norm in self.norms for kind in ("mean", "variance")]
        for name, value in zip(
            names, tf.split(statistics, [weights[n].shape[0] for n in names]), strict=True
        ):
            momentum = self.momenta.get(name.rpartition("/")[0], usual)
            self.state.weights[name].assign(momentum * weights[name] + (1.0 - momentum) * value)


def adapt_loss_scale(state: State, finite: tf.Tensor, whole: tf.Tensor) -> None:
    """Halves the scale after an overflow, doubles it after many updates without one; not if a rank's part is missing."""
    scale, good = tf.convert_to_tensor(state.loss_scale), tf.convert_to_tensor(state.good_updates)
    grow = tf.logical_and(finite, good + 1 >= SCALE_GROWTH_UPDATES)
    raised = tf.where(grow, scale * 2.0, scale)
    adapted = tf.where(finite, raised, tf.maximum(scale / 2.0, 1.0))
    counted = tf.where(tf.logical_or(grow, ~finite), tf.zeros_like(good), good + 1)
    state.loss_scale.assign(tf.where(whole, adapted, scale))
    state.good_updates.assign(tf.where(whole, counted, good))
