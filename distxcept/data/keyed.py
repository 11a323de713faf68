"""Random numbers that are functions of their key: no state, no order of drawing, the same on every machine.

Everything random in the data layer (order, augmentation, split, synthetic images) comes from here, so that a
sample looks the same whichever rank, thread or world size asks for it. Integer arithmetic only: 64-bit
multiply, xor and shift in the manner of the splitmix generators.

Each function comes twice, with equal bits: for NumPy, and (`…_of`) as operations of a TensorFlow graph.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLY_1 = 0xBF58476D1CE4E5B9
_MULTIPLY_2 = 0x94D049BB133111EB

U64 = NDArray[np.uint64]


def mix(values: U64) -> U64:
    """A bijection of 64-bit integers in which every output bit depends on every input bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_MULTIPLY_1)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_MULTIPLY_2)
    return values ^ (values >> np.uint64(31))


def key(*parts: int) -> int:
    """One 64-bit key from several integers; their order matters, negative ones count modulo 2^64."""
    state = 0
    for part in parts:
        state = (state + _GOLDEN) & _MASK
        state = _mix_int(state ^ _mix_int(part & _MASK))
    return state


def hashes(key: int, counters: NDArray[Any]) -> U64:
    """64 random bits for each counter under the key."""
    counters = np.atleast_1d(counters).astype(np.uint64)
    return mix(counters * np.uint64(_GOLDEN) + np.uint64(key))


def uniforms(key: int, counters: NDArray[Any], draws: int) -> NDArray[np.float64]:
    """`[counters, draws]` numbers in [0, 1): row i depends on the key and `counters[i]` alone."""
    rows = hashes(key, counters)[:, None]
    steps = (np.arange(1, draws + 1, dtype=np.uint64) * np.uint64(_GOLDEN))[None, :]
    return (mix(rows + steps) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def key_of(*parts: int | tf.Tensor) -> tf.Tensor:
    """Traced. The same key as `key`, uint64. Parts may be integer tensors; their shapes must broadcast."""
    state: int | tf.Tensor = 0
    for part in parts:
        if isinstance(part, int) and isinstance(state, int):
            state = _mix_int((state + _GOLDEN) & _MASK ^ _mix_int(part & _MASK))
        else:
            state = _mix_of(tf.bitwise.bitwise_xor(_u64(state) + _u64(_GOLDEN), _mix_of(_u64(part))))
    return _u64(state)


def hashes_of(key: tf.Tensor, counters: tf.Tensor) -> tf.Tensor:
    """Traced. `hashes`, uint64; key and counters are integers of shapes that broadcast."""
    return _mix_of(_u64(counters) * _u64(_GOLDEN) + _u64(key))


def uniforms_of(key: tf.Tensor, counters: tf.Tensor, draws: int) -> tf.Tensor:
    """Traced. `uniforms`, float64 [..., draws]; key and counters are integers of shapes that broadcast."""
    rows = hashes_of(key, counters)[..., None]
    steps = np.arange(1, draws + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    bits = tf.bitwise.right_shift(_mix_of(rows + tf.constant(steps)), _u64(11))
    return tf.cast(tf.bitcast(bits, tf.int64), tf.float64) * 2.0**-53


def _mix_of(values: tf.Tensor) -> tf.Tensor:
    for shift, factor in ((30, _MULTIPLY_1), (27, _MULTIPLY_2)):
        values = tf.bitwise.bitwise_xor(values, tf.bitwise.right_shift(values, _u64(shift))) * _u64(factor)
    return tf.bitwise.bitwise_xor(values, tf.bitwise.right_shift(values, _u64(31)))


def _u64(value: int | tf.Tensor) -> tf.Tensor:
    """The same bits as uint64."""
    if isinstance(value, int):
        return tf.constant(np.uint64(value & _MASK))
    value = tf.convert_to_tensor(value)
    return value if value.dtype == tf.uint64 else tf.bitcast(tf.cast(value, tf.int64), tf.uint64)


def _mix_int(value: int) -> int:
    value = ((value ^ (value >> 30)) * _MULTIPLY_1) & _MASK
    value = ((value ^ (value >> 27)) * _MULTIPLY_2) & _MASK
    return value ^ (value >> 31)
