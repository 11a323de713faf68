"""Why `distxcept plan` predicts no speed: what would have to change for a forecast to come back."""

from itertools import combinations

import pytest

from benchmarks.published_scaling import BOUND, LOADS, ROWS, check, worst


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_forecast_fits_the_rows_that_it_has_seen_and_misses_others(load):
    found = check(load)
    assert worst(found, fitted=True) < BOUND / 2
    assert worst(found, fitted=False) > 2 * BOUND
    assert worst(check(load, ROWS), fitted=False) > 2 * BOUND, "fitted on all rows it is no better"


def test_runs_that_a_plan_cannot_tell_apart_differ_by_more_than_twice_the_bound():
    """The same number of devices in one node, nearly the same speed of one: any forecast misses one of them."""
    alike = [
        abs(one.efficiency - other.efficiency)
        for one, other in combinations(ROWS, 2)
        if one.devices == other.devices == 8 and abs(one.runs.one / other.runs.one - 1) < 0.05
    ]
    assert 100 * max(alike) > 2 * BOUND


def test_efficiencies_are_those_of_the_source():
    """Weak scaling as the publication prints it."""
    printed = {
        ("EfficientNet B4", "DGX A100", "AMP", 64): 54.16,
        ("EfficientNet B0", "DGX-1 V100", "FP32", 32): 20.36,
    }
    for (model, machine, precision, devices), scaling in printed.items():
        (row,) = [
            row
            for row in ROWS
            if (row.runs.model, row.runs.machine.name, row.runs.precision, row.devices)
            == (model, machine, precision, devices)
        ]
        assert row.efficiency * devices == pytest.approx(scaling, abs=0.01)
