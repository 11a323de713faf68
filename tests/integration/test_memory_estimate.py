"""The memory estimate against real updates of the real Xception, each in a process of its own."""

import pytest

from benchmarks.memory import CASES, TOLERANCE, Case, render, run_case, summary


def check(case: Case) -> None:
    row = run_case(case)
    print(f"{case}: measured {row.measured_bytes}, estimated {row.estimate.total_bytes}, {row.error:+.1%}")
    assert abs(row.error) <= TOLERANCE


# One block of the middle instead of eight traces in half the time; every kind of layer is there.
@pytest.mark.parametrize(
    "case",
    [
        Case(128, 8, 0.5, "sgd", middle_blocks=1),
        Case(128, 8, 0.5, "sgd", remat=True, middle_blocks=1),
    ],
    ids=["kept", "rematerialised"],
)
def test_a_sample(case: Case) -> None:
    check(case)


@pytest.mark.soak
@pytest.mark.timeout(2 * 3600)
def test_all_of_the_table() -> None:
    rows = [run_case(case) for case in CASES]
    found = summary(rows)
    print(render(rows), found, sep="\n")
    assert found["reached"], found


def test_the_table_spans_what_it_shall() -> None:
    assert len(CASES) >= 24
    assert {case.image_size for case in CASES} >= {96, 299}
    assert {case.micro for case in CASES} >= {1, 16}
    assert {case.width for case in CASES} >= {0.25, 1.0}
    assert {case.optimizer for case in CASES} == {"sgd", "adam"}
    assert {case.remat for case in CASES} == {True, False}
