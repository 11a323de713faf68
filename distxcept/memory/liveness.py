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


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor. Two of the same size and kind are still two."""

    size_bytes: int
    kind: Kind


@dataclass(frozen=True, eq=False)
class Operation:
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    in_place: bool = False
    """What is written takes the place of the first value read, if this is its last reader."""
    workspace_bytes: int = 0
    """Freed when the operation ends."""


def peak(operations: Sequence[Operation], results: Collection[Value] = ()) -> Bytes:
    """Bytes by kind at the moment when most are alive. Results stay to the end; what nobody wrote here is not counted."""
    ends: dict[Value, int] = {}
    for number, operation in enumerate(operations):
        ends |= dict.fromkeys([*operation.reads, *operation.writes], number)
    ends |= dict.fromkeys(results, len(operations))
    alive: Bytes = Counter()
    most: Bytes = Counter()
    held: set[Value] = set()
    for number, operation in enumerate(operations):
        over = [value for value in (*operation.reads, *operation.writes) if ends[value] == number]
        if operation.in_place and operation.reads[0] in over:
            _free(operation.reads[0], alive, held)
        for value in operation.writes:
            alive[value.kind] += value.size_bytes
            held.add(value)
        alive["workspace"] += operation.workspace_bytes
        if alive.total() > most.total():
            most = alive.copy()
        alive["workspace"] -= operation.workspace_bytes
        for value in over:
            _free(value, alive, held)
    return most


def _free(value: Value, alive: Bytes, held: set[Value]) -> None:
    if value in held:
        held.remove(value)
        alive[value.kind] -= value.size_bytes
