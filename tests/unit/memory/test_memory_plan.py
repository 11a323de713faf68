"""Smaller memory plans, in order, until none is left."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxcept.batching import plan_batches
from distxcept.memory.candidates import micro_batches
from distxcept.memory.memory_plan import (
    FILE,
    InUse,
    MemoryPlan,
    next_smaller,
    read_plan_in_use,
    write_memory_plan,
)


def plans_after(micro, *, virtual, share, remat_allowed=True, halve=False):
    now, found = MemoryPlan(micro, False), []
    while plan := next_smaller(InUse(now, virtual, share), remat_allowed=remat_allowed, halve=halve):
        found.append((plan.micro, plan.remat))
        now = plan
    return found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        # 8 virtual batches in 1, 2, 3, 4 and 8 micro steps
        (
            dict(micro=32, virtual=4, share=32),
            [(16, False), (12, False), (8, False), (4, False), (4, True)],
        ),
        (dict(micro=28, virtual=4, share=32), [(16, False), (12, False), (8, False), (4, False), (4, True)]),
        (dict(micro=4, virtual=4, share=32), [(4, True)]),
        (dict(micro=4, virtual=4, share=32, remat_allowed=False), []),
        # micro 64, but the busiest replica has 16 samples an update: that is what it runs at once
        (dict(micro=64, virtual=8, share=16), [(8, False), (8, True)]),
        (dict(micro=32, virtual=4, share=32, halve=True), [(16, False), (8, False), (4, False), (4, True)]),
        (dict(micro=28, virtual=4, share=32, halve=True), [(12, False), (4, False), (4, True)]),
    ],
)
def test_order(arguments, expected):
    assert plans_after(**arguments) == expected


@given(st.integers(1, 300), st.integers(1, 300))
def test_each_is_a_candidate_of_the_plan_and_none_is_passed_over(share, micro):
    plan = plan_batches(samples=share, global_batch=share, virtual_batch=1, micro_batch=min(micro, share))
    expected = [m for m in micro_batches(plan) if m < min(micro, share)]
    assert [m for m, remat in plans_after(micro, virtual=1, share=share) if not remat] == expected


PLAN = {"global_batch": 24, "virtual_batch": 4, "micro_batch": 12, "replicas": 4, "shares": [1, 1, 1, 1]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (PLAN, InUse(MemoryPlan(12, False), 4, 8)),
        (PLAN | {"remat": True, "shares": [3, 1], "other": 1}, InUse(MemoryPlan(12, True), 4, 16)),
        ({"virtual_batch": 4}, None),
        (PLAN | {"virtual_batch": 0}, None),
        ([], None),
    ],
)
def test_reads_what_the_training_wrote(tmp_path, fields, expected):
    (tmp_path / "plan.json").write_text(json.dumps(fields))
    assert read_plan_in_use(tmp_path) == expected


def test_no_plan_yet(tmp_path):
    assert read_plan_in_use(tmp_path) is None
    (tmp_path / "plan.json").write_text('{"virtual')
    assert read_plan_in_use(tmp_path) is None


def test_failed_plans_add_up(tmp_path):
    write_memory_plan(tmp_path, MemoryPlan(8, False), MemoryPlan(16, False), "killed")
    write_memory_plan(tmp_path, MemoryPlan(4, False), MemoryPlan(8, False), "killed again")
    write_memory_plan(tmp_path, MemoryPlan(4, True), MemoryPlan(8, False), "once more")
    assert json.loads((tmp_path / FILE).read_text()) == {
        "micro": 4,
        "remat": True,
        "reason": "once more",
        "failed": [{"micro": 16, "remat": False}, {"micro": 8, "remat": False}],
    }
    (tmp_path / FILE).write_text("[]")
    write_memory_plan(tmp_path, MemoryPlan(4, True), MemoryPlan(8, False), "after rubbish")
    assert json.loads((tmp_path / FILE).read_text())["failed"] == [{"micro": 8, "remat": False}]


@pytest.mark.parametrize(("left", "virtual", "micro"), [(12, 8, 8), (16, 8, 16), (4, 8, 8), (24, 16, 16)])
def test_a_limit_left_by_a_run_with_other_virtual_batches(left, virtual, micro):
    limited = MemoryPlan(64, False).at_most(MemoryPlan(left, True)).in_steps_of(virtual)
    assert limited == MemoryPlan(micro, True)
