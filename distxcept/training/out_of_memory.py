"""Running out of memory in an update: how it is recognised, and where it cannot be mended in this process."""

import tensorflow as tf

from distxcept.errors import PeerLostError

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


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError)):
        return True
    text = str(error).lower()
    return any(phrase in text for phrase in _PHRASES)


class LostForMemoryError(PeerLostError):
    """Memory ran out where this process cannot mend it."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"memory ran out {where}, so this process cannot go on; run the same command again: it goes on from "
            "the last snapshot with a smaller memory plan (distxcept launch --max-restarts does so by itself)"
        )
