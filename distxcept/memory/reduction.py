"""What the devices of a job exchange in an update: bytes, and seconds on the links between them. Pure.

The speed of a job is not predicted: `benchmarks/published_scaling.py` shows why not.
"""

from dataclasses import dataclass
from math import ceil

from distxcept.memory.estimate import NUMBER_BYTES
from distxcept.memory.links import Network
from distxcept.memory.planning import Proposal
from distxcept.model.freezing import trained_parameters

PACK_BYTES, LEAST_PACKS = 32 * 2**20, 4
"""Gradients of kernels leave in packs of about this size, in four at least; all others in one pack more."""
WORTH_SAYING = 0.1
"""Part of the devices that has no work before the plan says so."""


@dataclass(frozen=True)
class Row:
    world: int
    samples: int
    """Of one update on the busiest device."""
    idle_part: float
    """Of the devices' time, because the virtual batches of an update do not divide evenly."""
    seconds: float
    """On the links, whether the backward pass hides it or not."""


@dataclass(frozen=True)
class Reduction:
    network: Network
    gradient_bytes: int
    """Of one update, on the wire."""
    rows: list[Row]
    limit: str | None
    """From how many devices on the global batch leaves some without work."""


def reduction(proposal: Proposal, network: Network, world: int | None) -> Reduction:
    """For 2, 4, 8 … devices up to one virtual batch each, and for the number that was asked for."""
    batch = proposal.config.batch
    virtual_batches = batch.global_ // batch.virtual
    size = gradient_bytes(proposal)
    packs = max(LEAST_PACKS, ceil(size / PACK_BYTES)) + 1
    rows = []
    for number in worlds(virtual_batches, world):
        most = ceil(virtual_batches / number)
        seconds = packs * network.reduction_seconds(size / packs, number)
        rows.append(Row(number, most * batch.virtual, 1 - virtual_batches / (number * most), seconds))
    return Reduction(network, size, rows, _limit(rows, virtual_batches, batch.virtual))


def gradient_bytes(proposal: Proposal) -> int:
    config = proposal.config
    each = 2 if config.engine.compression == "fp16" else NUMBER_BYTES[config.precision][0]
    return each * sum(p.elements for p in trained_parameters(proposal.layout, config.model.freeze))


def worlds(virtual_batches: int, wanted: int | None) -> list[int]:
    """Powers of two that have work, 2 at least, and the one that was asked for."""
    powers = [2**k for k in range(1, max(2, virtual_batches).bit_length())]
    return sorted({*powers, *([wanted] if wanted and wanted > 1 else [])})


def _limit(rows: list[Row], virtual_batches: int, virtual: int) -> str | None:
    reached = next((row for row in rows if row.idle_part > WORTH_SAYING), None)
    if reached is None:
        return None
    return (
        f"With {reached.world} devices {reached.idle_part:.0%} of their time would be idle: the global batch has "
        f"{virtual_batches} virtual batch{'es' * (virtual_batches > 1)} of {virtual}. A larger batch.global or a smaller "
        "batch.virtual would change that, and the training too."
    )
