"""Verdicts of `distxcept prove`: one broken guarantee gives exit 1."""

import json
import math

import pytest

from distxcept.prove.rows import MEANING, Report, bounded, failed, measured, skipped, true

HELD = bounded("equality.again", "twice", 0.0, 0.0)


@pytest.mark.parametrize(
    ("value", "bound", "status"),
    [
        (0.0, 0.0, "held"),
        (1e-11, 1e-11, "held"),
        (1.1e-11, 1e-11, "broken"),
        (5e-324, 0.0, "broken"),
        (math.nan, 1.0, "broken"),
        (math.inf, 1.0, "broken"),
    ],
)
def test_a_bound_holds_or_not(value, bound, status):
    assert bounded("equality.x", "x", value, bound).status == status


@pytest.mark.parametrize(
    ("rows", "verdict", "code"),
    [
        ([HELD, measured("speed.x", "x", 3.0), skipped("links.x", "x", "one device")], "held", 0),
        ([HELD, bounded("equality.x", "x", 1.0, 0.5)], "broken", 1),
        ([HELD, true("memory.x", "x", False)], "broken", 1),
        ([HELD, failed("equality.x", "x", "the child died")], "broken", 1),
        ([], "held", 0),
    ],
)
def test_exit_code(rows, verdict, code):
    report = Report({}, rows)
    assert (report.verdict, report.exit_code) == (verdict, code)


def test_interrupted():
    assert Report({}, [HELD], interrupted=True).exit_code == 130
    assert Report({}, [HELD], interrupted=True).verdict == "interrupted"


def test_a_broken_row_has_its_figures():
    assert str(bounded("equality.x", "1 against 2", 3e-5, 2e-5, note="in conv1/kernel")) == (
        "equality.x: 1 against 2: 3.0e-05 (≤ 2.0e-05): in conv1/kernel"
    )


def test_json_is_finite_and_counts():
    rows = [
        HELD,
        bounded("equality.x", "x", math.nan, 1.0),
        measured("speed.x", "x", 2.5, "images/s", rounds=[2, 3]),
    ]
    found = json.loads(
        json.dumps(Report({"quick": True}, rows, {"equality": 1.26}).as_json(), allow_nan=False)
    )
    assert found["format"] == 1 and found["verdict"] == "broken" and found["quick"] is True
    assert found["broken"] == ["equality.x"]
    assert found["counts"] == {**dict.fromkeys(MEANING, 0), "held": 1, "broken": 1, "measured": 1}
    assert found["seconds"] == {"equality": 1.3}
    assert found["rows"][2] == {
        "section": "speed", "id": "speed.x", "what": "x", "status": "measured", "value": 2.5, "bound": None,
        "unit": "images/s", "note": "", "data": {"rounds": [2, 3]},
    }  # fmt: skip
