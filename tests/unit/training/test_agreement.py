"""Replicas that no longer hold the same weights: a fault between equal devices, a rounding between different ones."""

import hashlib
import json

import numpy as np
import pytest

from distxcept.errors import PeerLostError
from distxcept.training.agreement import ROUNDING, check_equal


class Variable:
    def __init__(self, *copies: float):
        kind = np.int64 if all(isinstance(copy, int) for copy in copies) else np.float32
        self.copies = [np.full(3, copy, kind) for copy in copies]

    def assign(self, value: np.ndarray) -> None:
        self.copies = [value.copy() for _ in self.copies]


class Devices:
    """An engine with one rank that holds all replicas."""

    def __init__(self, *kinds: str):
        self.kinds, self.exchanged = kinds, 0

    def device_kinds(self) -> list[str]:
        return list(self.kinds)

    def copies(self, variable: Variable) -> list[np.ndarray]:
        return variable.copies

    def broadcast(self, variables: list[Variable]) -> None:
        """There is one rank."""

    def exchange(self, message: bytes) -> list[bytes]:
        json.loads(message)
        self.exchanged += 1
        return [message]


class Held:
    """A state with one variable."""

    def __init__(self, variable: Variable, engine: Devices):
        self.variable, self.engine = variable, engine

    def variables(self) -> list[Variable]:
        return [self.variable]

    def digests(self) -> list[bytes]:
        return [hashlib.sha256(copy.tobytes()).digest() for copy in self.variable.copies]


def test_equal_weights_are_nothing_to_talk_about():
    held = Held(Variable(1.0, 1.0), Devices("A100", "A100"))
    assert check_equal(held, "after update 5") is None
    assert held.engine.exchanged == 1


def test_equal_devices_that_differ_are_a_fault():
    held = Held(Variable(1.0, 1.0, np.nextafter(np.float32(1), 2)), Devices("A100", "A100", "A100"))
    with pytest.raises(
        PeerLostError, match="after update 5, replica 2 no longer held the weights of replica 0"
    ):
        check_equal(held, "after update 5")


def test_different_cards_take_the_weights_of_the_first_again():
    held = Held(Variable(1.0, 1.0 + 1e-6), Devices("A100", "T4"))
    notice = check_equal(held, "after update 5")
    assert notice is not None and "9.5e-07" in notice, "the float32 nearest to 1e-6 above one"
    assert "A100, T4" in notice and "continue with the weights of replica 0" in notice
    assert all(np.array_equal(copy, np.ones(3, np.float32)) for copy in held.variable.copies)
    assert check_equal(held, "after update 6") is None


def test_what_no_rounding_explains_is_a_fault_of_different_cards_too():
    held = Held(Variable(1.0, 1.0 + 2 * ROUNDING), Devices("A100", "T4"))
    with pytest.raises(PeerLostError, match="more than rounding explains"):
        check_equal(held, "after update 5")


def test_a_counter_that_differs_is_a_fault_however_large_it_is():
    """A replica that is one update behind after many."""
    held = Held(Variable(1_000_000, 999_999), Devices("A100", "T4"))
    with pytest.raises(PeerLostError, match="more than rounding explains"):
        check_equal(held, "after update 1000000")
