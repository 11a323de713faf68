"""A leak is found; whatever else memory does in a healthy run is not called one."""

import math
import random

import pytest

from distxcept.memory.creep import BLOCKS, LOOK_EVERY, LOOKS, MAX_POINTS, MIN_POINTS, History, find_creep

MIB = 2**20
N = 2 * MIN_POINTS


def series(shape, *, noise_mib=0.0, points=N, per_point=10, seed=1):
    """`shape` gives MiB at a place between 0 and 1."""
    draw = random.Random(seed)
    return [
        (500 + k * per_point, round((3000 + shape(k / points) + draw.gauss(0, noise_mib)) * MIB))
        for k in range(points)
    ]


LEAKS = {
    "steady": (lambda x: 200 * x, 0),
    "just enough": (lambda x: 80 * x, 0),
    "noisy": (lambda x: 400 * x, 20),
    "with spikes of an evaluation": (lambda x: 300 * x + (900 if int(x * N) % 10 == 0 else 0), 0),
    "faster and faster": (lambda x: 300 * (x + x * x / 2), 0),
}
HEALTHY = {
    "flat": (lambda x: 0, 0),
    "noise": (lambda x: 0, 200),
    "too little to matter": (lambda x: 40 * x, 0),
    "one jump": (lambda x: 500 * (x > 0.4), 1),
    "three jumps": (lambda x: 200 * (x > 0.2) + 200 * (x > 0.5) + 200 * (x > 0.8), 1),
    "a cache that fills": (lambda x: 1000 * min(1, 3 * x), 1),
    "a heap that levels out": (lambda x: 600 * (1 - math.exp(-5 * x)), 1),
    "a saw": (lambda x: 500 * (8 * x % 1), 1),
    "a wave": (lambda x: 500 * math.sin(9 * x), 1),
    "falling": (lambda x: -500 * x, 1),
}


@pytest.mark.parametrize(("shape", "noise"), LEAKS.values(), ids=LEAKS)
def test_leaks(shape, noise):
    found = find_creep(series(shape, noise_mib=noise))
    assert found is not None
    assert found.since_update == 500
    total = shape(1) - shape(1 / N)
    assert found.bytes_per_update == pytest.approx(total * MIB / (10 * N), rel=0.25)


@pytest.mark.parametrize(("shape", "noise"), HEALTHY.values(), ids=HEALTHY)
def test_healthy(shape, noise):
    assert find_creep(series(shape, noise_mib=noise)) is None


def test_too_few_points():
    def steep(x: float) -> float:
        return 5000 * x

    assert find_creep(series(steep, points=MIN_POINTS - 1)) is None
    assert find_creep(series(steep, points=MIN_POINTS)) is not None


def test_the_slope_counts_updates_not_points():
    """Twice as fast in the second half: as many bytes an update, so it is as steady as before."""
    updates = [k * 10 if k < N // 2 else N * 5 + (k - N // 2) * 20 for k in range(N)]
    found = find_creep([(update, update * MIB) for update in updates])
    assert found is not None
    assert found.bytes_per_update == pytest.approx(MIB)


def test_wandering_memory_is_no_leak():
    """A random walk rises over long stretches by chance; none of 300 is mistaken, however often it is looked at."""
    draw = random.Random(7)
    mistaken = 0
    for _ in range(300):
        history, held, wrong = History(), 4000 * MIB, False
        for update in range(400):
            held += round(draw.gauss(0, 12) * MIB)
            history.add(update, held)
            wrong |= update % LOOK_EVERY == 0 and history.look() is not None
        mistaken += wrong
    assert mistaken == 0


def test_a_long_history_takes_little_memory_and_still_finds_a_slow_leak():
    history = History()
    for update in range(100_000):
        history.add(update, 3000 * MIB + update * 4096)
        assert len(history._points) <= MAX_POINTS
    assert [history.look() is None for _ in range(LOOKS - 1)] == [True] * (LOOKS - 1)
    found = history.look()
    assert found is not None
    assert found.bytes_per_update == pytest.approx(4096, rel=0.01)


def test_a_leak_that_begins_late():
    history = History()
    for update in range(20 * BLOCKS):
        history.add(update, 3000 * MIB)
    assert [history.look() for _ in range(LOOKS)] == [None] * LOOKS
    for update in range(20 * BLOCKS, 40 * BLOCKS):
        history.add(update, 3000 * MIB + (update - 20 * BLOCKS) * MIB)
    assert [history.look() for _ in range(LOOKS)][-1] is not None
