"""What differs between ranks is named before they train."""

import pytest

from distxcept.cluster.sameness import code_version, data_disagreement, disagreement


def rank(**changes):
    return {
        "host": "a",
        "code": "1 (x)",
        "config": {"run": {"seed": 0, "name": "r"}, "precision": "float32"},
    } | changes


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (rank(host="b"), None),
        (rank(host="b", code="1 (y)"), "rank 1 on b runs distxcept 1 (y), but rank 0 on a 1 (x)"),
        (
            rank(host="b", config={"run": {"seed": 7, "name": "r"}, "precision": "float32"}),
            "rank 1 on b has another config than rank 0 on a (run.seed: 0 on rank 0, 7 there)",
        ),
        (
            rank(config={"run": None, "precision": "float64"}),
            "(precision: float32 on rank 0, float64 there; run: ",
        ),
        (rank(config={}), "(precision: float32 on rank 0, None there; run: "),
    ],
)
def test_disagreement(second, message):
    found = disagreement([rank(), second])
    assert found == message if message is None else message in found


def test_the_code_has_a_digest_that_stays():
    assert code_version() == code_version()
    assert len(code_version().split("(")[1]) == 13


def test_other_data():
    assert data_disagreement(["3 samples"] * 4) is None
    assert "rank 2 sees other training data than rank 0 (4 samples, and not 3 samples)" in data_disagreement(
        ["3 samples", "3 samples", "4 samples"]
    )
