"""Which sample stands at which position of an epoch: a permutation of (seed, epoch), computed by index.

No list is kept and nothing is drawn in sequence, so any position of any epoch costs the same: resuming in the
middle of an epoch is asking for other positions. Rank, world size and micro batch do not occur here.

The permutation is a Feistel network on the pairs (row, column) of a grid just larger than the number of
samples: each round adds to one coordinate a random function of the other, modulo its range, which can be undone
and therefore loses nothing. Positions that leave the samples walk on until they come back, which keeps it a
bijection of exactly `samples` indices.
"""

from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxcept.batching import BatchPlan
from distxcept.data.keyed import U64, hashes, key

PADDING = -1
"""Index of a slot of the last virtual batch that holds no sample."""

# Four rounds hide the structure in theory; small grids need more, and a round costs microseconds.
_ROUNDS = 12
_STREAM = 0x0D0E_5EED


def permute(positions: NDArray[Any], *, samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The sample indices at these positions of the epoch."""
    rows = isqrt(samples - 1) + 1
    columns = -(-samples // rows)
    keys = [key(_STREAM, seed, epoch, round_) for round_ in range(_ROUNDS)]
    walked = _shuffle_grid(np.atleast_1d(positions).astype(np.uint64), rows, columns, keys)
    outside = walked >= np.uint64(samples)
    while outside.any():
        walked[outside] = _shuffle_grid(walked[outside], rows, columns, keys)
        outside = walked >= np.uint64(samples)
    return walked.astype(np.int64).reshape(np.shape(positions))


def _shuffle_grid(cells: U64, rows: int, columns: int, keys: list[int]) -> U64:
    row, column = np.divmod(cells, np.uint64(columns))
    for round_, round_key in enumerate(keys):
        if round_ % 2:
            column = (column + hashes(round_key, row) % np.uint64(columns)) % np.uint64(columns)
        else:
            row = (row + hashes(round_key, column) % np.uint64(rows)) % np.uint64(rows)
    return row * np.uint64(columns) + column


def update_indices(
    plan: BatchPlan, *, seed: int | None, epoch: int, update: int, virtual: range
) -> NDArray[np.int64]:
    """Sample indices `[len(virtual), virtual_batch]` of these virtual batches of an update; `PADDING` where none.

    Without a seed the order is the natural one, the same in every epoch (validation).
    """
    first = update * plan.global_batch
    numbers = np.arange(virtual.start * plan.virtual_batch, virtual.stop * plan.virtual_batch, dtype=np.int64)
    real = numbers < plan.real_samples(update)
    indices = np.where(real, first + numbers, PADDING)
    if seed is not None:
        indices[real] = permute(indices[real], samples=plan.samples, seed=seed, epoch=epoch)
    return indices.reshape(len(virtual), plan.virtual_batch)
