"""Update rules as pure functions of (weights, gradients, slots) of a pack. The formulas are those of Keras 3."""

from dataclasses import dataclass

import tensorflow as tf

from distxcept.config.schema import OptimizerSection
from distxcept.model.packs import Pack

DECOUPLED = ("adamw", "lamb")


@dataclass(frozen=True)
class Optimizer:
    """What a step takes from the config. `time` counts applied updates from 1."""

    config: OptimizerSection

    def step(
        self,
        pack: Pack,
        weight: tf.Tensor,
        gradient: tf.Tensor,
        slots: dict[str, tf.Tensor],
        *,
        rate: tf.Tensor,
        time: tf.Tensor,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Traced, replica context. The new weights and slots of a pack; all vectors are flat."""
        decay = self.config.weight_decay if pack.decays else 0.0
        if decay and self.config.name not in DECOUPLED:
            gradient = gradient + decay * weight
            decay = 0.0
        rule = {"sgd": self._sgd, "rmsprop": self._rmsprop}.get(self.config.name)
        if rule is not None:
            return rule(weight, gradient, slots, rate)
        return self._moments(pack, weight, gradient, slots, rate, time, decay)

    def _sgd(self, weight, gradient, slots, rate):
        momentum = self.config.momentum
        if not momentum:
            return weight - rate * gradient, {}
        velocity = momentum * slots["velocity"] - rate * gradient
        move = momentum * velocity - rate * gradient if self.config.nesterov else velocity
        return weight + move, {"velocity": velocity}

    def _rmsprop(self, weight, gradient, slots, rate):
        rho = self.config.rho
        mean_square = rho * slots["mean_square"] + (1.0 - rho) * tf.square(gradient)
        move = rate * gradient * tf.math.rsqrt(mean_square + self.config.epsilon)
        if not self.config.momentum:
            return weight - move, {"mean_square": mean_square}
        velocity = self.config.momentum * slots["velocity"] + move
        return weight - velocity, {"mean_square": mean_square, "velocity": velocity}

    def _moments(self, pack, weight, gradient, slots, rate, time, decay):
        """Adam, AdamW and LAMB: the same two moments, then their own way to step along their quotient."""
        beta1, beta2 = self.config.betas
        epsilon = self.config.epsilon
        first = beta1 * slots["first_moment"] + (1.0 - beta1) * gradient
        second = beta2 * slots["second_moment"] + (1.0 - beta2) * tf.square(gradient)
        # tf.cast would round the Python number to float32 first.
        correction1 = 1.0 - tf.pow(tf.constant(beta1, weight.dtype), time)
        correction2 = 1.0 - tf.pow(tf.constant(beta2, weight.dtype), time)
        new_slots = {"first_moment": first, "second_moment": second}
        if self.config.name == "lamb":
            direction = first / correction1 / (tf.sqrt(second / correction2) + epsilon) + decay * weight
            # Biases and batch-norm parameters are small by nature. They have no trust ratio, as they have no decay.
            trust = _trust_ratios(pack, weight, direction) if pack.decays else 1.0
            return weight - rate * trust * direction, new_slots
        alpha = rate * tf.sqrt(correction2) / correction1
        stepped = weight - alpha * first / (tf.sqrt(second) + epsilon)
        return (stepped - rate * decay * weight if decay else stepped), new_slots


def _trust_ratios(pack: Pack, weight: tf.Tensor, direction: tf.Tensor) -> tf.Tensor:
    """Traced. Of each tensor one ratio, repeated for each of its elements."""
    weight_norm, direction_norm = _norms(pack, weight), _norms(pack, direction)
    usable = tf.logical_and(weight_norm > 0, direction_norm > 0)
    ratio = weight_norm / tf.where(usable, direction_norm, tf.ones_like(direction_norm))
    ratio = tf.where(usable, ratio, tf.ones_like(ratio))
    ratio = tf.concat([ratio, tf.ones([1], ratio.dtype)], axis=0)
    return tf.repeat(ratio, [*pack.sizes, pack.padding])


def _norms(pack: Pack, vector: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.stack([tf.reduce_sum(part) for part in pack.cut(tf.square(vector))]))
