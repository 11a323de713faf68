"""Random numbers that are functions of their key: no state, no order of drawing, the same on every machine.

Everything random in the data layer (order, augmentation, split, synthetic images) comes from here, so that a
sample looks the same whichever rank, thread or world size asks for it. Integer arithmetic only: 64-bit
multiply, xor and shift in the manner of the splitmix generators.
"""

from typing import Any

import numpy as np
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


def _mix_int(value: int) -> int:
    value = ((value ^ (value >> 30)) * _MULTIPLY_1) & _MASK
    value = ((value ^ (value >> 27)) * _MULTIPLY_2) & _MASK
    return value ^ (value >> 31)
