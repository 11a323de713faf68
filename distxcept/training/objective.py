"""The loss of each sample."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class Objective:
    classes: int
    label_smoothing: float = 0.0
    class_weights: np.ndarray | None = None

    def targets(self, labels: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        return tf.one_hot(labels, self.classes, dtype=dtype)

    def losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Traced. Cross entropy of each sample, with smoothed targets, times the weight of its class.

        Targets that mix two classes have the mixture of their weights.
        """
        smooth = targets
        if self.label_smoothing:
            smooth = targets * (1.0 - self.label_smoothing) + self.label_smoothing / self.classes
        losses = tf.nn.softmax_cross_entropy_with_logits(smooth, logits)
        if self.class_weights is not None:
            losses *= tf.linalg.matvec(targets, tf.constant(self.class_weights, logits.dtype))
        return losses
