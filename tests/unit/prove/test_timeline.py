"""Horovod's trace → how long gradients were on their way, and how much of it was hidden."""

import json

import pytest

from distxcept.prove.race.timeline import read_timeline

NAMES = {
    1: "distxcept_gradients_0",
    2: "distxcept_gradients_1",
    3: "distxcept_exact_0",
    4: "distxcept_exact_1",
}


def span(row: int, name: str, begin: float, end: float) -> list[dict]:
    return [
        {"ph": "B", "name": name, "ts": begin, "pid": row},
        {"ph": "E", "ts": end, "pid": row},
    ]


def update(at: float) -> list[dict]:
    """The backward pass ends at 100; the first bucket ran from 20 to 60, the second from 90 to 140."""
    return [
        *span(1, "NEGOTIATE_ALLREDUCE", at + 10, at + 20),
        {"ph": "B", "name": "ALLREDUCE", "ts": at + 20, "pid": 1},
        *span(1, "MPI_ALLREDUCE", at + 25, at + 55),
        {"ph": "E", "ts": at + 60, "pid": 1},
        *span(2, "NEGOTIATE_ALLREDUCE", at + 80, at + 90),
        *span(2, "ALLREDUCE", at + 90, at + 140),
        *span(4, "NEGOTIATE_ALLREDUCE", at + 100, at + 141),
        *span(4, "ALLREDUCE", at + 141, at + 150),
    ]


def trace(*updates: list[dict]) -> str:
    rows = [
        {"name": "process_name", "ph": "M", "pid": row, "args": {"name": name}} for row, name in NAMES.items()
    ]
    began = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1}}
    events = [began, *rows, *(event for events in updates for event in events)]
    return "[\n" + ",\n".join(json.dumps(event) for event in events)


@pytest.mark.parametrize("end", ["\n]", "", ",\n", ',\n{"ph": "B", "na'])
def test_two_updates(tmp_path, end):
    path = tmp_path / "timeline.json"
    path.write_text(trace(update(0), update(1000)) + end)
    found = read_timeline(path)
    assert len(found) == 2
    for one in found:
        assert one.busy_seconds == pytest.approx(90e-6)
        assert one.exposed_seconds == pytest.approx(40e-6)
        assert one.hidden_part == pytest.approx(1 - 40 / 90)


def test_a_trace_of_something_else(tmp_path):
    path = tmp_path / "timeline.json"
    path.write_text("[]")
    assert read_timeline(path) == []
