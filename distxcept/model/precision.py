"""Number formats: what variables are kept in and what the forward pass computes in."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class Precision:
    variable: tf.DType
    """Weights, gradients, sums and statistics."""
    compute: tf.DType
    """Activations."""
    loss_scaling: bool = False

    @property
    def numpy(self) -> type[np.generic]:
        return self.variable.as_numpy_dtype


PRECISIONS = {
    "float32": Precision(tf.float32, tf.float32),
    "mixed_float16": Precision(tf.float32, tf.float16, loss_scaling=True),
    "mixed_bfloat16": Precision(tf.float32, tf.bfloat16),
    "float64": Precision(tf.float64, tf.float64),
}
