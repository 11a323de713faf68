"""What is alive at once in a row of operations."""

import pytest

from distxcept.memory.liveness import Operation, Value, peak


def values(*sizes: int) -> list[Value]:
    return [Value(size, "activations") for size in sizes]


def row(*steps: tuple[list[Value], list[Value]], in_place: bool = False) -> list[Operation]:
    return [Operation(tuple(reads), tuple(writes), in_place=in_place) for reads, writes in steps]


def test_a_chain_holds_two_neighbours():
    a, b, c = values(10, 20, 40)
    assert peak(row(([], [a]), ([a], [b]), ([b], [c]))).total() == 60


def test_what_is_read_again_stays():
    a, b, c, d = values(10, 20, 40, 1)
    assert peak(row(([], [a]), ([a], [b]), ([b], [c]), ([c, a], [d]))).total() == 70


@pytest.mark.parametrize(("last_reader", "total"), [(True, 30), (False, 40)])
def test_in_place_only_for_the_last_reader(last_reader, total):
    a, b, c = values(10, 10, 20)
    later = [] if last_reader else [a]
    operations = [*row(([], [a])), *row(([a], [b]), in_place=True), *row(([b, *later], [c]))]
    assert peak(operations).total() == total


def test_results_stay_and_others_do_not():
    a, b, c = values(10, 20, 40)
    operations = row(([], [a, b]), ([], [c]))
    assert peak(operations).total() == 40
    assert peak(operations, results=[a]).total() == 50


def test_workspace_lives_within_its_operation():
    (a,) = values(10)
    operations = [Operation((), (a,), workspace_bytes=100), Operation((a,), (), workspace_bytes=50)]
    assert dict(peak(operations)) == {"activations": 10, "workspace": 100}


def test_what_came_from_outside_is_not_counted():
    given, made = values(1000, 10)
    assert peak(row(([given], [made]))).total() == 10
