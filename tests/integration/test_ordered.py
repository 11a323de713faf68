"""`engine.reduction: ordered`, float32, one thread each: the same bits on every engine and world size."""

import hashlib

import numpy as np
import pytest
from equivalence.cases import Case
from equivalence.jobs import Results

# Twelve virtual batches over eight lanes; three in the short update, so that lanes and whole ranks have none.
ORDERED = (("batch.virtual", 2), ("batch.micro", 2), ("engine.reduction", "ordered"))
FEATURES = ("momentum", "clip_norm", "ema", "weight_decay", "dropout", "augmentation", "short_last_update")


def ordered(engine: str, lanes: int = 8) -> Case:
    extra = (*ORDERED, ("engine.lanes", lanes))
    return Case(engine, "virtual", FEATURES, "float32", updates=5, extra=extra)


SINGLE, OTHER_LANES = ordered("single"), ordered("single", lanes=4)
OTHERS = [ordered(engine) for engine in ("mirrored2", "horovod2", "horovod4")]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("ordered"), [SINGLE, OTHER_LANES, *OTHERS])


def digest(tensors: dict[str, np.ndarray]) -> str:
    state = hashlib.sha256()
    for name in sorted(tensors):
        state.update(name.encode() + tensors[name].tobytes())
    return state.hexdigest()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.engine, marks=[pytest.mark.mpi] if "horovod" in case.engine else [])
        for case in OTHERS
    ],
)
def test_same_bits(results: Results, case: Case) -> None:
    ours, theirs = results.of(case).tensors(), results.of(SINGLE).tensors()
    assert int(ours["counters/applied"].reshape(())) == 5
    assert {name for name in ours if ours[name].tobytes() != theirs[name].tobytes()} == set()
    assert digest(ours) == digest(theirs)


@pytest.mark.timeout(1800)
def test_another_order_gives_other_bits(results: Results) -> None:
    """So the bits above are those of the order, not of numbers that any order would sum alike."""
    assert digest(results.of(OTHER_LANES).tensors()) != digest(results.of(SINGLE).tensors())
