"""How exactly TensorFlow computes: TF32 products and deterministic kernels. Both are settings of the process.

A process may run several trainings, one after the other, so each one sets both, on or off.
"""

import os
import time

import tensorflow as tf
from tensorflow.python.framework import (
    config as tf_config,
)  # the public module can only switch determinism on

from distxcept.config.schema import EngineSection

BY_ENVIRONMENT = "TF_DETERMINISTIC_OPS"
"""TensorFlow's own variable; it wins over `deterministic: auto`."""


def set_numerics(config: EngineSection) -> None:
    """Eager, before the first operation of a training."""
    wished = config.deterministic == "auto" and os.environ.get(BY_ENVIRONMENT, "").lower() in ("1", "true")
    tf.config.experimental.enable_tensor_float_32_execution(config.allows_tf32)
    if config.is_deterministic or wished:
        tf.config.experimental.enable_op_determinism()
    else:
        tf_config.disable_op_determinism()


def is_deterministic() -> bool:
    """What is in effect now."""
    return tf_config.is_op_determinism_enabled()


def clock() -> tf.Tensor:
    """Traced, on the host. Seconds since 1970 at which it runs. TensorFlow's own clock refuses to run deterministically."""
    if not is_deterministic():
        return tf.timestamp()
    return tf.ensure_shape(tf.numpy_function(time.time, [], tf.float64), [])
