"""Running out of memory in an update: how it is recognised, and where it cannot be mended in this process."""

import tensorflow as tf

from distxcept.errors import PeerLostError

OUT_OF_MEMORY = (
    tf.errors.ResourceExhaustedError,
    tf.errors.InternalError,
    tf.errors.AbortedError,
    MemoryError,
)
"""Errors that may be one; `is_out_of_memory` knows."""

# CUDA, cuDNN and oneDNN tell of it in errors of other kinds.
_PHRASES = (
    "out of memory",
    "out_of_memory",
    "alloc_failed",
    "failed to allocate",
    "failed to alloc",
    "bad_alloc",
    "status: 1, message",
)


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError)):
        return True
    text = str(error).lower()
    return any(phrase in text for phrase in _PHRASES)


class LostInApplyError(PeerLostError):
    """Memory ran out where the update could not be taken back."""

    def __init__(self, overlap: bool) -> None:
        where = "while gradients were already on their way" if overlap else "while the weights were changing"
        super().__init__(
            f"memory ran out {where}, so this process cannot go on; run the same command again: it goes on from "
            "the last snapshot with a smaller memory plan"
        )
