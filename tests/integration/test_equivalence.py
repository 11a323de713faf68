"""Every engine and every micro batch gives the weights of one device and one whole batch.

Each run goes through the real config, source, pipeline, loop and snapshot, on a shallow Xception with batch norm;
what is compared is the snapshot: weights, moving statistics, optimizer slots, moving average, counters.
"""

from itertools import product

import pytest
from equivalence import cases
from equivalence.cases import ENGINES, FEATURES, GROUPS, MICROS, Case
from equivalence.jobs import Results

FLOAT64_LIMIT, FLOAT32_LIMIT = 1e-11, 2e-5

ONE_MICRO_EACH = {"single": ("double",), "mirrored2": ("virtual",)}
EVERY_MICRO = {engine: tuple(MICROS) for engine in ENGINES}

CONTROL = Case("single", "virtual", GROUPS[-1], updates=cases.updates_of(GROUPS[-1]), control="fixed_divisor")

EVERYDAY = [
    *cases.everyday(),
    *cases.overlapped(("horovod2",), ("virtual",), "short_updates_only"),
    *cases.overlapped(("mirrored2",), ("virtual",)),
    *cases.as_on_a_gpu(),
    *cases.in_float32(ONE_MICRO_EACH, padded=False),
    *cases.in_float32({"mirrored3": ("double",), "horovod2": ("virtual",)}, padded=True),
]
SOAK = [
    *cases.whole(),
    *cases.overlapped(("mirrored2", "mirrored3", "horovod2", "horovod3"), tuple(MICROS)),
    *cases.as_on_a_gpu(tuple(ENGINES), tuple(MICROS)),
    *cases.in_float32(EVERY_MICRO, padded=False),
    *cases.in_float32(EVERY_MICRO, padded=True),
]


def compared(of: list[Case]) -> list:
    marks = {True: [pytest.mark.mpi], False: []}
    return [
        pytest.param(case, id=case.name, marks=marks[case.engine.startswith("horovod")])
        for case in of
        if case.compared
    ]


@pytest.fixture(scope="module")
def everyday(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("everyday"), [*EVERYDAY, CONTROL])


@pytest.fixture(scope="module")
def soak(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("soak"), SOAK, optimize=True)


def largest_difference(results: Results, case: Case) -> tuple[float, str]:
    found = cases.differences(results.of(case).tensors(), results.of(case.reference).tensors())
    worst = max(found, key=lambda name: found[name])
    return found[worst], worst


def check(results: Results, case: Case) -> None:
    largest, name = largest_difference(results, case)
    print(f"{case.name}: {largest:.1e} in {name}")
    assert largest <= (FLOAT64_LIMIT if case.precision == "float64" else FLOAT32_LIMIT), name
    ours, theirs = results.of(case).report()["records"], results.of(case.reference).report()["records"]
    assert [record["samples"] for record in ours] == [record["samples"] for record in theirs]
    assert [record["accuracy"] for record in ours] == [record["accuracy"] for record in theirs]
    assert [record["loss"] for record in ours] == pytest.approx(
        [record["loss"] for record in theirs], rel=1e-5
    )
    assert int(results.of(case).tensors()["counters/applied"].reshape(())) == case.updates
    if "clip_norm" in case.features:
        assert all(record["gradient_norm"] > 10 * cases.CLIP_NORM for record in ours)


def test_everyday_cases_cover_every_pair_of_values() -> None:
    of = cases.everyday()
    assert {(case.engine, case.micro) for case in of} == set(product(ENGINES, MICROS))
    assert {(case.engine, f) for case in of for f in case.features} == set(product(ENGINES, FEATURES))
    assert {(case.micro, f) for case in of for f in case.features} == set(product(MICROS, FEATURES))
    # what would hide a wrong factor is not in every run
    assert any(not {"adam", "clip_norm"} & set(case.features) for case in of)


def test_the_soak_has_the_whole_matrix() -> None:
    found = {(case.engine, case.micro, *case.features) for case in cases.whole()}
    assert found == set(product(ENGINES, MICROS, FEATURES))
    assert len({case.name for case in SOAK}) == len(SOAK)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", compared(EVERYDAY))
def test_same_weights(everyday: Results, case: Case) -> None:
    check(everyday, case)


@pytest.mark.timeout(1800)
def test_the_comparison_sees_a_wrong_divisor(everyday: Results) -> None:
    largest, _ = largest_difference(everyday, CONTROL)
    assert largest > 1e-6


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", compared(EVERYDAY))
def test_one_trace_for_each_size_of_a_micro_step(everyday: Results, case: Case) -> None:
    """However many replicas and epochs there are, overlapped or not, in full and in short updates."""
    report = everyday.of(case).report()
    # In float32 a micro step with padding is a form of its own. Each rank traces what it needs.
    forms = 2 if case.precision == "float32" and case.padded and case.engine == "mirrored3" else 1
    assert report["traces"] == forms * len(report["part_sizes"])


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("case", compared(SOAK))
def test_same_weights_whole_matrix(soak: Results, case: Case) -> None:
    check(soak, case)
