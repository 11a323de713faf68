"""`engine.reduction: ordered`, float32, one thread each: the same bits on every engine and world size."""

import hashlib

import numpy as np
import pytest
from equivalence.cases import Case
from equivalence.jobs import Results

ORDERED = (("batch.virtual", 2), ("batch.micro", 2), ("engine.reduction", "ordered"))
FEATURES = ("momentum", "clip_norm", "ema", "weight_decay", "dropout", "augmentation")
# Every lane is traced on its own, and a full and a short update are: the soak has eight lanes and both kinds, with twelve
# and three virtual batches, so that lanes and whole ranks have none. Every day there are seven for four lanes.
LANES, SOAK_LANES = 4, 8
UPDATES = {2: 3, LANES: 3, SOAK_LANES: 5}


def ordered(engine: str, lanes: int) -> Case:
    extra = (*ORDERED, ("engine.lanes", lanes))
    if lanes == SOAK_LANES:
        return Case(engine, "virtual", (*FEATURES, "short_last_update"), "float32", UPDATES[lanes], extra)
    return Case(engine, "virtual", FEATURES, "float32", UPDATES[lanes], (*extra, ("data.train.samples", 14)))


SINGLE, OTHER_LANES = ordered("single", LANES), ordered("single", LANES // 2)
ENGINES = ("mirrored2", "horovod2")
SOAK_ENGINES = (*ENGINES, "horovod4")


def marked(names: tuple[str, ...]) -> list:
    return [pytest.param(name, marks=[pytest.mark.mpi] if "horovod" in name else []) for name in names]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    cases = [SINGLE, OTHER_LANES, *(ordered(engine, LANES) for engine in ENGINES)]
    return Results(tmp_path_factory.mktemp("ordered"), cases)


@pytest.fixture(scope="module")
def soak(tmp_path_factory: pytest.TempPathFactory) -> Results:
    cases = [ordered(engine, SOAK_LANES) for engine in ("single", *SOAK_ENGINES)]
    return Results(tmp_path_factory.mktemp("ordered_soak"), cases)


def digest(tensors: dict[str, np.ndarray]) -> str:
    state = hashlib.sha256()
    for name in sorted(tensors):
        state.update(name.encode() + tensors[name].tobytes())
    return state.hexdigest()


def check(results: Results, engine: str, lanes: int) -> None:
    ours, theirs = (
        results.of(ordered(engine, lanes)).tensors(),
        results.of(ordered("single", lanes)).tensors(),
    )
    assert int(ours["counters/applied"].reshape(())) == UPDATES[lanes]
    assert {name for name in ours if ours[name].tobytes() != theirs[name].tobytes()} == set()
    assert digest(ours) == digest(theirs)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", marked(ENGINES))
def test_same_bits(results: Results, engine: str) -> None:
    check(results, engine, LANES)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", marked(SOAK_ENGINES))
def test_same_bits_with_more_lanes(soak: Results, engine: str) -> None:
    check(soak, engine, SOAK_LANES)


@pytest.mark.timeout(1800)
def test_another_order_gives_other_bits(results: Results) -> None:
    """So the bits above are those of the order, not of numbers that any order would sum alike."""
    assert digest(results.of(OTHER_LANES).tensors()) != digest(results.of(SINGLE).tensors())
