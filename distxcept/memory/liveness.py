"""The most memory that a row of operations holds at once.

A value lives from the operation that writes it to its last reader. This is what TensorFlow's executor does: a tensor is
freed as soon as its last consumer has run, and an element-wise operation takes the place of an input that nobody
needs any more.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "weights",
    "slots",
    "moving_average",
    "gradients",
    "accumulators",
    "reduction",
    "activations",
    "workspace",
    "input",
]

Bytes = Counter[Kind]


@dataclass(eq=False, slots=True)
class Value:
    """A tensor. Two of the same size and kind are still two."""

    size_bytes: int
    kind: Kind


@dataclass(eq=False, slots=True)
class Operation:
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    in_place: bool = False
    """What is written takes the place of the first value read, if this is its last reader."""
    workspace_bytes: int = 0
    """Freed when the operation ends."""


def peak(operations: Sequence[Operation], results: Collection[Value] = ()) -> Bytes:
    """Bytes by kind at the moment when most are alive. Results stay to the end; what nobody wrote here is not counted."""
    lives = _lives(operations, results)
    starts, ends = [0] * len(operations), [0] * (len(operations) + 1)
    for value, (born, last) in lives.items():
        starts[born] += value.size_bytes
        ends[last] += value.size_bytes
    alive = most = moment = 0
    for number, operation in enumerate(operations):
        alive += starts[number]
        if alive + operation.workspace_bytes > most:
            most, moment = alive + operation.workspace_bytes, number
        alive -= ends[number]
    found: Bytes = Counter()
    for value, (born, last) in lives.items():
        if born <= moment <= last:
            found[value.kind] += value.size_bytes
    if operations:
        found["workspace"] += operations[moment].workspace_bytes
    return found


def _lives(operations: Sequence[Operation], results: Collection[Value]) -> dict[Value, tuple[int, int]]:
    """The numbers of the first and the last operation at which each value takes memory."""
    born = {value: number for number, one in enumerate(operations) for value in one.writes}
    last = dict(born)
    for number, operation in enumerate(operations):
        for value in operation.reads:
            last[value] = number
    for value in results:
        last[value] = len(operations)
    for number, operation in enumerate(operations):
        if operation.in_place and last[operation.reads[0]] == number:
            last[operation.reads[0]] = number - 1
    return {value: (first, last[value]) for value, first in born.items() if first <= last[value]}
