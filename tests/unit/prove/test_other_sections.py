"""What the sections conclude from what their children tell. No TensorFlow."""

import json
from dataclasses import replace

import numpy as np
import pytest
from machines import GIB, card, cpus, gpus

from distxcept.doctor.finding import Finding
from distxcept.doctor.gpu import AREA as GPU_AREA
from distxcept.memory.nvml import GpuProcess
from distxcept.prove import audit, environment, links, memory, quiet, recovery, speed
from distxcept.prove.children import NOT_STARTED, TIME_IS_UP, Children, Ended
from distxcept.prove.context import Context
from distxcept.prove.race.setting import Setting
from distxcept.prove.recovery import Scarce
from distxcept.prove.rows import Report

OUT_OF_MEMORY = [{"kind": "out_of_memory", "message": "update 1 ran out of memory with micro batch 12"}]
RESTARTED = [{"kind": "supervisor", "action": "shrink", "message": "SIGSEGV"}]
CALM = [{"kind": "supervisor", "action": "done", "message": "done"}]
ONE = Scarce("mirrored", 2, 1)
LIMIT = 500 * 2**20


@pytest.fixture
def ended(tmp_path):
    def make(code: int = 0) -> Ended:
        log = tmp_path / "log"
        log.write_text("the last line\n")
        return Ended(code, "", log, 1.0)

    return make


@pytest.fixture
def too_late(ended):
    """Ended by the deadline of the whole proof."""
    return replace(ended(-9), timed_out=True, too_late=True)


@pytest.fixture
def too_slow(ended):
    """Ended by its own limit."""
    return replace(ended(-9), timed_out=True)


class Answers:
    """Children that answer what they are told to; `asked` has what each was started with."""

    def __init__(self, **answers: Ended):
        self.answers, self.asked = answers, {}

    def run(self, name: str, command, **options) -> Ended:
        self.asked[name] = {"command": list(command), **options}
        return self.answers[name.replace("-", "_")]


def context_of(tmp_path, children, *, quick: bool = False, machine=None) -> Context:
    return Context(machine or cpus(), quick, tmp_path, children)


def weights(value: float = 1.0) -> dict[str, np.ndarray]:
    return {"weights/a": np.array([value, 2.0])}


@pytest.mark.parametrize("events", [OUT_OF_MEMORY, RESTARTED])
def test_recovered_to_the_same_weights(ended, events):
    row = recovery.judge(ONE, ended(), LIMIT, events, weights(), weights(), "")
    assert (row.id, row.status, row.value) == ("recovery.mirrored", "held", 0.0)


def test_recovered_to_other_weights(ended):
    row = recovery.judge(ONE, ended(), LIMIT, OUT_OF_MEMORY, weights(1.001), weights(), "")
    assert row.status == "broken" and row.value == pytest.approx(0.0005)


def test_not_recovered(ended):
    row = recovery.judge(ONE, ended(1), LIMIT, OUT_OF_MEMORY, None, weights(), "")
    assert row.status == "broken" and "exit code 1: the last line" in row.note


@pytest.mark.parametrize(("code", "events"), [(0, CALM), (4, OUT_OF_MEMORY)])
def test_a_limit_that_proves_nothing_is_no_guarantee(ended, code, events):
    assert recovery.judge(ONE, ended(code), LIMIT, events, weights(), weights(), "").status == "failed"


def test_a_recovery_that_was_not_waited_for_is_not_broken(too_late, too_slow):
    for late, why in ((too_late, TIME_IS_UP), (too_slow, "no answer within 1 s")):
        row = recovery.judge(ONE, late, LIMIT, OUT_OF_MEMORY, weights(), weights(), "")
        assert (row.status, row.note) == ("failed", why)


def test_a_recovery_is_tried_once_if_time_is_over(tmp_path, ended, too_late):
    planned_text = replace(ended(), stdout=json.dumps(planned()))
    children = Answers(recovery_plan_mirrored=planned_text, recovery_mirrored_1=too_late)
    found, _ = recovery.run_scarce(context_of(tmp_path, children), ONE, tmp_path / "config.yaml", tmp_path)
    assert found is too_late and set(children.asked) == {"recovery-plan-mirrored", "recovery-mirrored-1"}


def test_without_the_undisturbed_training_nothing_is_shown(ended):
    row = recovery.judge(ONE, ended(), LIMIT, OUT_OF_MEMORY, weights(), None, "SIGKILL")
    assert row.status == "failed" and row.note == "SIGKILL"


def planned(kind: str = "cpu", **measured: int) -> dict:
    """Micro batches 4, 8 and 16; `m8=900` is a trial with a peak of 900 bytes."""
    trials = {int(name[1:]): {"fits": True, "peak_bytes": peak} for name, peak in measured.items()}
    candidates = [
        {"micro_batch": m, "remat": False, "total_bytes": 10 * m, "fits": m < 16, "measured": trials.get(m)}
        for m in (16, 8, 4)
    ]
    device = {"kind": kind, "own_bytes": 1000, "reserve_bytes": 60, "name": "this device"}
    return {"device": device, "batch": {"replicas": 1}, "candidates": candidates}


def test_a_limit_between_the_smallest_and_the_largest_need():
    need = recovery.needs(planned())
    assert need == {16: 1220, 8: 1140, 4: 1100}
    assert recovery.limit_bytes(need, 0.5) == 1160
    assert recovery.needs(planned("gpu")) == {16: 160, 8: 80, 4: 40}


def test_the_largest_accepted_plan():
    assert memory.largest_accepted(planned()["candidates"])["micro_batch"] == 8
    assert memory.largest_accepted(planned(m4=900)["candidates"])["micro_batch"] == 4, (
        "the largest that was tried"
    )
    assert memory.largest_accepted([{"micro_batch": 4, "fits": False}]) is None


@pytest.mark.parametrize(
    ("code", "events", "updates", "status"),
    [(0, [], 20, "held"), (0, OUT_OF_MEMORY, 20, "broken"), (0, [], 19, "broken"), (-11, [], 4, "broken")],
)
def test_a_plan_that_is_accepted_has_to_run(ended, code, events, updates, status):
    metrics = [{"update": updates, "peak_memory": 1188}]
    run, estimate = memory.judge(planned(), planned()["candidates"][1], ended(code), events, metrics)
    assert (run.id, run.status) == ("memory.largest", status)
    assert estimate.value == 1.1  # of 80 bytes of tensors and 1000 of TensorFlow


def test_updates_that_were_not_waited_for_break_nothing(too_late, too_slow):
    for late, why in ((too_late, TIME_IS_UP), (too_slow, "no answer within 1 s")):
        (row,) = memory.judge(planned(), planned()["candidates"][1], late, [], [{"update": 4}])
        assert row.status == "failed" and row.note.startswith(f"ended after 4 updates: {why}")


@pytest.mark.parametrize("kind", ["too_late", "too_slow"])
def test_without_time_for_trials_the_estimate_is_proved(tmp_path, ended, request, kind):
    children = Answers(
        memory_trials=request.getfixturevalue(kind),
        memory_plan=replace(ended(), stdout=json.dumps(planned())),
        memory_largest=ended(1),
    )
    trials, largest = memory.run(context_of(tmp_path, children))
    assert (trials.id, trials.status) == ("memory.trials", "skipped")
    assert largest.id == "memory.largest" and largest.data["micro_batch"] == 8
    assert children.asked["memory-trials"]["leave_seconds"] == memory.RUN_SECONDS
    assert children.asked["memory-plan"]["leave_seconds"] == 0, "a guarantee takes what is left"
    assert "--probe" in children.asked["memory-trials"]["command"]
    assert "--probe" not in children.asked["memory-plan"]["command"]
    assert "batch.micro=8" in children.asked["memory-largest"]["command"]


def test_trials_that_broke_have_failed(tmp_path, ended):
    children = Answers(
        memory_trials=ended(-11),
        memory_plan=replace(ended(), stdout=json.dumps(planned())),
        memory_largest=ended(1),
    )
    trials, _ = memory.run(context_of(tmp_path, children))
    assert trials.status == "failed" and trials.note == "SIGSEGV: the last line"


def test_without_time_for_a_plan_its_guarantee_has_failed(tmp_path, too_late):
    children = Answers(memory_trials=too_late, memory_plan=too_late)
    trials, plan = memory.run(context_of(tmp_path, children))
    assert (trials.status, plan.id, plan.status, plan.note) == (
        "skipped", "memory.plan", "failed", TIME_IS_UP
    )  # fmt: skip


def test_the_quick_form_makes_no_trials_on_a_gpu(tmp_path, ended):
    children = Answers(memory_plan=replace(ended(), stdout=json.dumps(planned())), memory_largest=ended(1))
    (largest,) = memory.run(context_of(tmp_path, children, quick=True, machine=gpus()))
    assert largest.id == "memory.largest"


def test_the_quick_form_makes_trials_on_a_cpu(tmp_path, ended):
    """There the estimate alone may accept a plan that runs out of memory."""
    children = Answers(memory_trials=replace(ended(), stdout=json.dumps(planned())), memory_largest=ended(1))
    (largest,) = memory.run(context_of(tmp_path, children, quick=True))
    assert largest.id == "memory.largest"
    assert children.asked["memory-trials"]["leave_seconds"] == memory.RUN_SECONDS_QUICK


def test_trials_against_their_estimates():
    (row,) = memory.trial_rows(planned("gpu", m8=88))
    assert (row.id, row.value, row.status) == ("memory.trial_8", 1.1, "measured")


def result(who: str, speeds: list[float], failure: str = "", *, took_turns: bool = True) -> dict:
    return {
        "who": who, "variant": "float32", "speeds": speeds, "failure": failure, "peak_bytes": 5,
        "took_turns": took_turns,
    }  # fmt: skip


def test_speeds():
    rows = list(speed.judge([result("distxcept", [20, 30, 40]), result("fit", [10, 10, 10])], "71 px"))
    assert [(row.id, row.value, row.status) for row in rows] == [
        ("speed.distxcept_float32", 30, "measured"),
        ("speed.fit_float32", 10, "measured"),
    ]
    assert rows[1].note == "distxcept is 3.00 × as fast"


def test_a_contestant_that_did_not_run():
    ours, fit = speed.judge([result("distxcept", [], failure="no memory"), result("fit", [5.0])], "71 px")
    assert (ours.status, ours.value, ours.note) == ("measured", None, "not measured: no memory"), (
        "a speed is no guarantee"
    )
    assert fit.status == "measured" and fit.value == 5.0 and "as fast" not in fit.note
    ours, fit = speed.judge([result("distxcept", [5.0]), result("fit", [], failure="no memory")], "71 px")
    assert (ours.status, fit.status, fit.value) == ("measured", "measured", None)


def test_who_took_no_turns_is_compared_by_medians():
    """Rounds of two that ran one after the other have nothing in common."""
    for took_turns, ratio, more in ((True, 1.0, ""), (False, 0.5, ", each measured alone")):
        ours = result("distxcept", [10, 20, 60], took_turns=took_turns)
        fit = result("fit", [5, 40, 60], took_turns=took_turns)
        assert speed.ratio(ours, fit) == ratio
        _, row = speed.judge([ours, fit], "299 px")
        assert row.note == f"distxcept is {ratio:.2f} × as fast{more}"


def race_of(tmp_path, ended: Ended, *told: dict, machine=None) -> dict:
    text = "".join(json.dumps(one) + "\n" for one in told)
    context = context_of(tmp_path, Answers(speed=replace(ended, stdout=text)), machine=machine)
    return {row.id: row for row in speed.race(context, tmp_path, Setting(71, 8))}


def test_who_is_late_for_the_race_is_skipped(tmp_path, too_late):
    rows = race_of(tmp_path, too_late, result("distxcept", [5.0]))
    assert list(rows) == ["speed.distxcept_float32", "speed.fit_float32", "speed.loop_float32"]
    ours, *others = rows.values()
    assert (ours.status, ours.value) == ("measured", 5.0), "who was measured in time has a figure"
    assert [(row.status, row.note) for row in others] == [("skipped", TIME_IS_UP)] * 2
    assert Report({}, list(rows.values())).exit_code == 0


def test_a_race_without_time_names_everybody(tmp_path, ended):
    late = replace(ended(NOT_STARTED), too_late=True)
    rows = race_of(tmp_path, late, machine=gpus())
    assert len(rows) == 3 * 6 and {row.status for row in rows.values()} == {"skipped"}


def test_a_race_that_broke_is_told_without_figures(tmp_path, ended):
    rows = race_of(tmp_path, ended(1), result("distxcept", [5.0]))
    fit = rows["speed.fit_float32"]
    assert (fit.status, fit.value, fit.note) == (
        "measured", None, "not measured: exit code 1: the last line"
    )  # fmt: skip
    assert race_of(tmp_path, ended(), result("distxcept", [5.0]))["speed.loop_float32"].note == (
        "not measured: it said nothing"
    )


def test_what_is_raced():
    def names(machine, quick):
        return [(one.who, one.variant) for one in speed.entries(machine, quick=quick)]

    assert names(cpus(), False) == [("distxcept", "float32"), ("fit", "float32"), ("loop", "float32")]
    assert {variant for _, variant in names(gpus(), False)} == {
        "tf32", "float32", "float16", "bfloat16", "tf32_jit", "float16_jit"
    }  # fmt: skip
    assert {variant for _, variant in names(gpus(tf32=False), False)} == {
        "float32", "float16", "bfloat16", "float32_jit", "float16_jit"
    }  # fmt: skip
    for quick in (True, False):
        found = names(gpus(), quick)
        assert len(found) == len(set(found)) and found[0][0] == "distxcept"
        assert [who for who, _ in found] == ["distxcept", "fit", "loop"] * (len(found) // 3), (
            "where time ends, whole variants have been compared"
        )


def test_everybody_uses_xla_or_nobody():
    for one in speed.entries(gpus(), quick=False):
        words = " ".join(one.contestant.command)
        switch = "on" if one.variant.endswith("_jit") else "off"
        assert (f"engine.jit={switch}" if one.who == "distxcept" else f"--jit {switch}") in words


def test_the_batch_fits_the_card():
    assert speed.setting_of(gpus(), quick=False) == Setting(299, 32, classes=1000)
    assert speed.setting_of(cpus(), quick=True).image_size == 71


def test_phases_of_an_update():
    """In the loop the reduction is hidden behind the backward pass; the phases are those of an update without that."""
    told = {
        "update_seconds": 0.085, "apart_seconds": 0.1, "reduce_seconds": 0.02, "apply_seconds": 0.03, "idle_part": 0.125
    }  # fmt: skip
    found = {row.id: row for row in speed.judge_phases(told, 2)}
    assert {id: row.value for id, row in found.items()} == {
        "speed.update": 85, "speed.forward_backward": 50, "speed.reduce": 20, "speed.apply": 30, "speed.idle": 12.5
    }  # fmt: skip
    assert found["speed.update"].what == "an update on 2 devices, as the loop runs it"
    assert found["speed.update"].note == "100 ms where the reduction waits for the end of the backward pass"
    assert found["speed.reduce"].note == "20% of an update without overlap"
    alone = {row.id: row for row in speed.judge_phases({**told, "idle_part": None}, 1)}
    assert "speed.idle" not in alone
    assert (alone["speed.update"].note, alone["speed.reduce"].note) == ("", "20% of an update")


def test_phases_that_were_not_timed(tmp_path, ended, too_late, too_slow):
    def row(end: Ended):
        (found,) = speed.phases(context_of(tmp_path, Answers(phases_1=end)), tmp_path, Setting(71, 8))
        return found.id, found.status, found.value, found.note

    assert row(too_late) == ("speed.update", "skipped", None, TIME_IS_UP)
    assert row(too_slow) == ("speed.update", "measured", None, "not measured: no answer within 1 s")
    assert row(ended()) == ("speed.update", "measured", None, "not measured: it said nothing")


def test_phases_come_before_the_race(tmp_path, too_late):
    children = Answers(phases_1=too_late, speed=too_late)
    list(speed.run(context_of(tmp_path, children)))
    assert list(children.asked) == ["phases-1", "speed"]


def test_least_seconds_of_work_that_is_ready():
    calls = []
    assert quiet.least_seconds(lambda: calls.append(1), 3) >= 0 and len(calls) == 4, "one traces"
    assert quiet.least_seconds(lambda: calls.append(1), 3, ready=True) >= 0 and len(calls) == 7


def test_idle_gaps():
    assert quiet.idle([(0, 10), (5, 20), (30, 40)]) == 0.25
    assert quiet.idle([(0, 10), (2, 3), (4, 5), (10, 20)]) == 0.0


def test_links():
    told = {"reduced_bytes": 100_000_000, "reduced_seconds": 0.05, "tiny_seconds": 1e-5}
    row = links.judge("links.mirrored", "x", told, 2, "NVLink")
    assert row.value == 2.0 and row.unit == "GB/s" and row.data["transport"] == "NVLink"
    assert row.data["link_bytes_per_second"] == pytest.approx(2e9, rel=1e-3)


def test_links_without_time_are_skipped_and_broken_ones_fail(tmp_path, ended, too_late, too_slow):
    def statuses(end: Ended) -> list[str]:
        children = Answers(links_1=end, links_2=end)
        return [row.status for row in links.run(context_of(tmp_path, children))]

    assert statuses(too_late) == ["skipped"] * 2
    assert statuses(ended(1)) == ["failed"] * 2
    assert statuses(too_slow) == ["failed"] * 2


FINDINGS = [
    Finding(GPU_AREA, "ok", "a card"),
    Finding("host", "warning", "little memory", "buy some"),
    Finding(GPU_AREA, "problem", "no driver"),
    Finding("tensorflow", "problem", "it does not start"),
]


@pytest.mark.parametrize(("on_gpu", "status"), [(True, "failed"), (False, "measured")])
def test_environment(on_gpu, status):
    """Where the CPU is proved, nothing that is wrong with a GPU breaks a guarantee; it is told."""
    found = {row.id: row for row in environment.judge(FINDINGS, on_gpu=on_gpu)}
    assert found["environment.gpu"].status == status and found["environment.gpu"].note == "no driver"
    assert found["environment.tensorflow"].status == "failed"
    assert found["environment.host"].status == "measured"
    assert found["environment.host"].note == "little memory (buy some)"


def test_others_on_the_cards():
    """A warning: it breaks nothing."""
    free = environment.users_row(gpus())
    assert (free.id, free.status, free.value, free.note) == ("environment.others", "measured", 0, "ok")
    used = card(processes=(GpuProcess(8, 2 * GIB, "python"),), busy_percent=97)
    row = environment.users_row(replace(gpus(), cards=(used,)))
    assert (row.status, row.value) == ("measured", 2)
    assert row.note.startswith("GPU 0 was 97 % busy; GPU 0 is shared with python (pid 8, 2.0 GiB). Figures")
    assert Report({}, [row]).exit_code == 0


@pytest.mark.parametrize(("machine", "there"), [(gpus(), True), (cpus(), False)])
def test_only_cards_have_others(tmp_path, monkeypatch, machine, there):
    monkeypatch.setattr(environment, "examine", lambda environ, report: FINDINGS)
    rows = {row.id: row for row in environment.run(context_of(tmp_path, Children(tmp_path), machine=machine))}
    assert ("environment.others" in rows) == there
    assert rows["environment.gpu"].status == ("failed" if there else "measured")


def test_an_audit_without_time_has_failed(tmp_path, too_late):
    children = Answers(audit=too_late)
    (row,) = audit.run(context_of(tmp_path, children))
    assert (row.id, row.status, row.note) == ("audit.update", "failed", TIME_IS_UP)


def test_audit():
    counted = [{"what": "operations of Keras' Xception", "count": 812, "most": None}]
    good, keras = audit.judge([], counted)
    (bad,) = audit.judge(["X has no GPU kernel"], [])
    assert (good.id, good.status, bad.status, bad.value) == ("audit.update", "held", "broken", 1)
    assert bad.note == "X has no GPU kernel"
    assert (keras.id, keras.value) == ("audit.operations_of_keras_xception", 812)


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        ("nvlink", "NVLink"),
        ("p2p", "PCIe, card to card, over a PCIe host bridge"),
        ("healthy", "host memory, over a PCIe host bridge"),
        ("lost_later", "host memory, over an unknown path"),
        ("no_driver", None),
    ],
)
def test_what_joins_two_cards(fake_nvml_folder, scenario, kind):
    import os
    import subprocess
    import sys

    code = "from distxcept.prove.links import read_ways; print([way.kind for way in read_ways([0, 1])])"
    environ = {**os.environ, "LD_LIBRARY_PATH": str(fake_nvml_folder), "FAKE_NVML_SCENARIO": scenario}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str([kind] if kind else [])
