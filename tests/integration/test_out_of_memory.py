"""A rank really runs out of memory in the middle of a run: the run goes on by itself, to the same weights."""

import json
import random

import pytest
from equivalence.cases import ENGINES, Case, differences
from equivalence.jobs import Results
from equivalence.starving import ENVIRON

LIMIT = 1e-11
UPDATES, SOAK_UPDATES, SOAK_RUNS = 3, 8, 20

# Even of the smallest micro step one tensor is larger than what is spared. If several fitted, memory could end in the
# scratch space of a kernel, and there TensorFlow dies.
LARGE = (("model.image_size", 144), ("model.width", 0.25), ("engine.check_every", 1))


def starved(engine: str, updates: int, rank_of_update: dict[int, int], *, late: bool = False) -> Case:
    hungry = tuple(sorted(rank_of_update.items()))
    return Case(
        engine, "whole", ("momentum", "dropout"), updates=updates, extra=LARGE, starved=hungry, late=late
    )


def ranks(engine: str) -> int:
    return ENGINES[engine] if engine.startswith("horovod") else 1


def at_random(engine: str) -> list[Case]:
    """Not the first update: what is starved there is the tracing."""
    chance = random.Random(engine)
    found: dict[Case, None] = {}
    while len(found) < SOAK_RUNS:
        hungry = chance.sample(range(2, SOAK_UPDATES + 1), chance.choice([1, 2]))
        case = starved(engine, SOAK_UPDATES, {update: chance.randrange(ranks(engine)) for update in hungry})
        found[case] = None
    return list(found)


EVERYDAY = [
    starved("single", 3, {2: 0}),
    starved("mirrored2", 3, {3: 0}),
    starved("horovod2", 3, {2: 1}),
    # Gradients of the last layers are ready long before those of the first, and must not leave by themselves.
    starved("horovod2", 3, {2: 1}, late=True),
]
SOAK = {engine: at_random(engine) for engine in ("single", "mirrored2", "horovod2")}


def marked(cases: list[Case]) -> list:
    return [
        pytest.param(
            case,
            id=case.engine + "-late" * case.late,
            marks=[pytest.mark.mpi] if ranks(case.engine) > 1 else [],
        )
        for case in cases
    ]


@pytest.fixture(scope="module")
def everyday(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("everyday"), EVERYDAY, environ=ENVIRON)


@pytest.fixture(scope="module")
def soak(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(
        tmp_path_factory.mktemp("soak"),
        [case for of_engine in SOAK.values() for case in of_engine],
        environ=ENVIRON,
    )


def check(results: Results, case: Case) -> list[dict]:
    happened = [e for e in results.of(case).report()["events"] if e["kind"] == "out_of_memory"]
    calm = results.of(case.reference)
    assert not [e for e in calm.report()["events"] if e["kind"] == "out_of_memory"]
    assert happened and happened[0]["update"] == case.starved[0][0] - 1  # updates that were done
    worst = max(differences(results.of(case).tensors(), calm.tensors()).values())
    assert worst <= LIMIT, worst
    return happened


@pytest.mark.parametrize("case", marked(EVERYDAY))
def test_the_run_goes_on_in_smaller_steps(everyday: Results, case: Case) -> None:
    (event,) = check(everyday, case)
    # In two micro steps: of 6 virtual batches on one device, of 3 on each of two ranks. A new process takes half of 3.
    assert event["micro"] == {"single": 12, "mirrored2": 4, "horovod2": 8}[case.engine]
    assert f"set batch.micro={event['micro']} to start so" in event["message"]
    plan = json.loads((everyday.of(case).folder / "plan.json").read_text())
    assert (plan["micro_batch"], plan["remat"]) == (event["micro"], False)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("engine", ["single", "mirrored2", pytest.param("horovod2", marks=pytest.mark.mpi)])
def test_at_random_updates_and_ranks(soak: Results, engine: str) -> None:
    failures = sum(len(check(soak, case)) for case in SOAK[engine])
    print(f"{engine}: {failures} times out of memory in {SOAK_RUNS} runs, all with the undisturbed weights")
    assert failures >= SOAK_RUNS
