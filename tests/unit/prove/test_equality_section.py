"""What the comparison of weights concludes; a wrong weight breaks it."""

import numpy as np
import pytest
from machines import cpus

from distxcept.prove import equality
from distxcept.prove.cases import Job, Pair
from distxcept.prove.children import NOT_STARTED, TIME_IS_UP, Children, Ended
from distxcept.prove.context import Context
from distxcept.prove.rows import Report

PAIR = Pair("mirrored2", "2 against 1", "mirrored2", "reference", 1e-11)
FINE = {"mirrored2": None, "reference": None}


def tensors(change: float = 0.0) -> dict[str, np.ndarray]:
    return {
        "weights/a": np.array([1.0, -2.0 * (1 + change)]),
        "weights/b": np.array([3.0]),
        "counters": np.array([4]),
    }


def test_equal_weights_hold():
    row = equality.judge(PAIR, FINE, (tensors(), tensors()))
    assert (row.id, row.status, row.value, row.bound) == ("equality.mirrored2", "held", 0.0, 1e-11)


def test_a_changed_weight_breaks_the_guarantee():
    row = equality.judge(PAIR, FINE, (tensors(1e-9), tensors()))
    assert row.status == "broken" and row.value == pytest.approx(1e-9)
    assert "weights/a" in row.note
    assert Report({}, [row]).exit_code == 1


def test_without_a_bound_the_difference_is_measured():
    row = equality.judge(Pair("tf32", "on", "mirrored2", "reference", None), FINE, (tensors(1e-3), tensors()))
    assert row.status == "measured" and row.value == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("ends", "both", "word"),
    [
        ({**FINE, "mirrored2": "SIGSEGV"}, (None, tensors()), "SIGSEGV"),
        (FINE, (tensors(), None), "no whole snapshot"),
        (FINE, (tensors(), {"weights/a": np.zeros(2)}), "other tensors"),
    ],
)
def test_what_could_not_be_compared_has_failed(ends, both, word):
    row = equality.judge(PAIR, ends, both)
    assert row.status == "failed" and word in row.note


@pytest.mark.parametrize("late", ["mirrored2", "reference"])
@pytest.mark.parametrize(("bound", "status"), [(1e-11, "failed"), (0.0, "failed"), (None, "skipped")])
def test_without_time_a_guarantee_has_failed_and_a_figure_is_skipped(late, bound, status):
    pair = Pair("tf32", "on against off", "mirrored2", "reference", bound)
    both = tuple(None if case == late else tensors() for case in FINE)
    row = equality.judge(pair, {**FINE, late: TIME_IS_UP}, both)
    assert row.status == status and TIME_IS_UP in row.note
    assert Report({}, [row]).exit_code == (1 if status == "failed" else 0)


def test_a_figure_whose_training_crashed_is_not_skipped():
    pair = Pair("tf32", "on against off", "mirrored2", "reference", None)
    assert equality.judge(pair, {**FINE, "mirrored2": "SIGSEGV"}, (None, tensors())).status == "failed"


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 3.0], [1.0, 2.0], 0.5),
        ([0.0], [0.0], 0.0),
        ([1e-3], [0.0], 1e-3),
        ([1.0], [1.0, 1.0], np.inf),
        ([np.nan], [1.0], np.inf),
        ([1.0], [np.inf], np.inf),
    ],
)
def test_difference(ours, theirs, found):
    assert equality.difference(np.array(ours), np.array(theirs)) == pytest.approx(found)


def test_one_tensor_that_is_not_finite_breaks_it():
    row = equality.judge(PAIR, FINE, ({**tensors(), "weights/b": np.array([np.nan])}, tensors()))
    assert (row.status, row.value) == ("broken", None) and "weights/b" in row.note


def test_zeros_of_other_signs_are_other_bits():
    assert equality.difference(np.array([0.0]), np.array([-0.0])) > 0.0


def test_cases_after_a_crash_have_failed(tmp_path, monkeypatch):
    """The child has told of its first case only."""
    log = tmp_path / "log"
    log.write_text("terminate called\n")
    told = 'chatter\n{"case": "reference", "seconds": 1.0, "failure": null}\n'
    monkeypatch.setattr(Children, "run", lambda *a, **k: Ended(-11, told, log, 3.0))
    context = Context(cpus(), True, tmp_path, Children(tmp_path))
    job = Job("float64", tuple(case(name) for name in ("reference", "again")), 1)
    assert equality.run_job(context, job, tmp_path) == {
        "reference": None,
        "again": "SIGSEGV: terminate called",
    }


def test_cases_that_were_done_before_the_deadline_count(tmp_path, monkeypatch):
    told = '{"case": "reference", "seconds": 1.0, "failure": null}\n'
    ended = Ended(-9, told, tmp_path / "log", 3.0, timed_out=True, too_late=True)
    monkeypatch.setattr(Children, "run", lambda *a, **k: ended)
    context = Context(cpus(), True, tmp_path, Children(tmp_path))
    job = Job("float64", tuple(case(name) for name in ("reference", "again")), 1)
    assert equality.run_job(context, job, tmp_path) == {"reference": None, "again": TIME_IS_UP}
    monkeypatch.setattr(
        Children, "run", lambda *a, **k: Ended(NOT_STARTED, "", tmp_path / "log", 0.0, too_late=True)
    )
    assert set(equality.run_job(context, job, tmp_path).values()) == {TIME_IS_UP}


def case(name: str):
    from distxcept.prove.cases import Case

    return Case(name, 1, {"run.updates": 1})
