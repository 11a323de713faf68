"""The loss of each sample."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class Objective:
    classes: int
    label_smoothing: float = 0.0
    class_weights: np.ndarray | None = None

    def losses(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Traced. Cross entropy of each sample, with smoothed labels, times the weight of its class."""
        targets = tf.one_hot(labels, self.classes, dtype=logits.dtype)
        if self.label_smoothing:
            targets = targets * (1.0 - self.label_smoothing) + self.label_smoothing / self.classes
        losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
        if self.class_weights is not None:
            losses *= tf.gather(tf.constant(self.class_weights, logits.dtype), labels)
        return losses
