"""Who is steadily slow, and who is not."""

import json
import re

import pytest

from distxcept.training.stragglers import (
    EVERY,
    FIRST_UPDATES,
    IN_A_ROW,
    Stragglers,
    Window,
    describe,
    find_slow,
)


def window(*seconds, virtual=None, **of_last):
    """By rank; None for a rank without work. `virtual`: batches of each rank, 1 if not given."""
    made = [
        None
        if s is None
        else Window(
            host=f"h{k}",
            seconds=s,
            virtual_batches=virtual[k] if virtual else 1,
            data_wait=0.0,
            cores=1.0,
            throttling=[],
        )
        for k, s in enumerate(seconds)
    ]
    if of_last:
        made[-1] = Window(**{**made[-1].__dict__, **of_last})
    return made


@pytest.mark.parametrize(
    ("windows", "slow"),
    [
        ([window(1, 1, 2)] * IN_A_ROW, [2]),
        ([window(1, 2)] * IN_A_ROW, [1]),
        ([window(1, 1, 1.3)] * IN_A_ROW, []),
        ([window(1, 1, 2)] * (IN_A_ROW - 1), []),
        ([window(1, 1, 2), window(1, 1, 1), window(1, 1, 2)], []),
        ([window(1, 1, 2), window(1, 2, 1), window(2, 1, 1)], []),  # each once: noise
        ([window(1, 1, 1)] * 5 + [window(1, 1, 2)] * IN_A_ROW, [2]),
        ([window(1, None, 2)] * IN_A_ROW, [2]),
        ([window(None, None, 2)] * IN_A_ROW, []),
        ([window(1, 1, 1, 1, 3, 3)] * IN_A_ROW, [4, 5]),
        ([window(1, 1, 2, virtual=[2, 2, 4])] * IN_A_ROW, []),  # twice the work
        ([window(1, 1, 3.5, virtual=[2, 2, 4])] * IN_A_ROW, [2]),
        ([window(1, 1, 0.9, virtual=[2, 2, 1])] * IN_A_ROW, []),  # half the work, but nearly all the overhead
        ([window(1, 1, 1.6, virtual=[2, 2, 1])] * IN_A_ROW, [2]),
        ([], []),
    ],
)
def test_find(windows, slow):
    assert find_slow(windows) == slow


@pytest.mark.parametrize(
    ("differs", "words"),
    [
        (dict(data_wait=0.6), "waits for data 60% of its time, the others 0%"),
        (dict(throttling=["heat"]), r"throttled \(heat\)"),
        (dict(cores=0.5), r"gets 0\.5 CPU cores, the others 1\.0"),
        ({}, "nothing that can be seen"),
    ],
)
def test_words(differs, words):
    text = describe(window(1, 1, 2, **differs), 2)
    assert text.startswith("rank 2 on h2 is steadily 2.0 × slower")
    assert re.search(words, text)


class Engine:
    """Two ranks; the other one takes `other` seconds for an update."""

    ranks = 2

    def __init__(self):
        self.other, self.exchanges = 1.0, 0

    def devices(self):
        return ["CPU:0"]

    def exchange(self, message):
        self.exchanges += 1
        theirs = {
            "host": "b",
            "seconds": self.other,
            "virtual_batches": 2,
            "data_wait": 0.0,
            "cores": 1.0,
            "throttling": [],
        }
        return [message, json.dumps(theirs).encode()]


def test_named_once_within_twenty_updates_and_again_after_recovery():
    engine = Engine()
    stragglers = Stragglers(engine)
    heard: list[tuple[int, str]] = []

    def run(updates, other):
        engine.other = other
        for _ in range(updates):
            run.number += 1
            for message in stragglers.add(waited=0.0, worked=1.0, virtual_batches=2):
                heard.append((run.number, message))

    run.number = 0
    run(FIRST_UPDATES + 4 * EVERY, 1.0)
    assert (heard, engine.exchanges) == ([], 4)
    run(60, 2.0)
    (named,) = heard
    assert named[0] <= FIRST_UPDATES + 4 * EVERY + 20
    assert "rank 1 on b is steadily 2.0 × slower" in named[1]
    run(20, 1.0)
    run(20, 2.0)
    assert len(heard) == 2


def test_a_single_rank_exchanges_nothing():
    engine = Engine()
    engine.ranks = 1
    stragglers = Stragglers(engine)
    assert [stragglers.add(waited=0, worked=1, virtual_batches=1) for _ in range(20)] == [[]] * 20
    assert engine.exchanges == 0
