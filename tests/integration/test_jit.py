"""`engine.jit: on`: XLA computes the micro steps, to the same weights; randomness stays outside of it."""

from dataclasses import replace

import pytest
from equivalence.cases import Case, differences
from equivalence.jobs import Results

LIMIT = 1e-11
FEATURES = ("momentum", "dropout", "short_updates_only")


def jitted(engine: str, micro: str) -> Case:
    return Case(engine, micro, FEATURES, updates=2, extra=(("engine.jit", "on"),))


def plain(case: Case) -> Case:
    """The same without XLA."""
    return replace(case, extra=())


CASES = [jitted("single", "double"), jitted("mirrored2", "virtual")]


@pytest.fixture(scope="module")
def everyday(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("jit"), [CASES[0], plain(CASES[0]), CASES[0].reference])


@pytest.fixture(scope="module")
def soak(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("soak"), [CASES[1], plain(CASES[1]), CASES[1].reference])


def check(results: Results, case: Case) -> None:
    ours = results.of(case).tensors()
    assert max(differences(ours, results.of(case.reference).tensors()).values()) < LIMIT
    same_steps = differences(ours, results.of(plain(case)).tensors())
    assert any(value > 0 for value in same_steps.values()), "equal bits would mean that XLA was not used"


def test_same_weights_in_one_trace(everyday: Results) -> None:
    check(everyday, CASES[0])
    assert everyday.of(CASES[0]).report()["traces"] == 1


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES[1:], ids=lambda case: case.engine)
def test_same_weights_on_other_engines(soak: Results, case: Case) -> None:
    check(soak, case)
