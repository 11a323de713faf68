import pytest
import tensorflow as tf

from distxcept.errors import LostForMemoryError
from distxcept.training.out_of_memory import is_out_of_memory


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"), True),
        (MemoryError(), True),
        (tf.errors.InternalError(None, None, "CUDA_ERROR_OUT_OF_MEMORY: out of memory"), True),
        (tf.errors.CancelledError(None, None, "RecvAsync is cancelled."), True),
        (tf.errors.AbortedError(None, None, "Status: 1, message: could not create a memory object"), True),
        (tf.errors.AbortedError(None, None, "Status: 5, message: could not execute a primitive"), True),
        (RuntimeError("Error parsing message: Arena alloc failed"), True),
        (tf.errors.InternalError(None, None, "collective aborted: peer reset"), False),
        (tf.errors.InvalidArgumentError(None, None, "shapes differ"), False),
        (ValueError("no gradient"), False),
    ],
)
def test_recognised(error, expected):
    assert is_out_of_memory(error) is expected


def test_what_cannot_be_mended_here_says_how_to_go_on():
    error = LostForMemoryError("while the weights were changing")
    assert error.exit_code == 6
    assert "run the same command again" in str(error)
