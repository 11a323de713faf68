"""Running out of memory in an update: how it is recognised."""

import tensorflow as tf

# CUDA, cuDNN, oneDNN and protobuf tell of it in errors of other kinds.
_PHRASES = (
    "out of memory",
    "out_of_memory",
    "alloc_failed",
    "alloc failed",
    "failed to allocate",
    "failed to alloc",
    "bad_alloc",
    "status: 1, message",
    "could not create a",
    "could not execute a primitive",
)


# Nobody cancels an update. Where one device fails, TensorFlow cancels the others, and may report only that.
_KINDS = (tf.errors.ResourceExhaustedError, tf.errors.CancelledError, MemoryError)


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, _KINDS):
        return True
    text = str(error).lower()
    return any(phrase in text for phrase in _PHRASES)
