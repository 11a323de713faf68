"""What the sections conclude from what their children tell. No TensorFlow."""

import numpy as np
import pytest
from machines import cpus, gpus

from distxcept.doctor.finding import Finding
from distxcept.prove import audit, environment, links, memory, quiet, recovery, speed
from distxcept.prove.children import Ended
from distxcept.prove.race.setting import Setting
from distxcept.prove.recovery import Scarce

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


def test_trials_against_their_estimates():
    (row,) = memory.trial_rows(planned("gpu", m8=88))
    assert (row.id, row.value, row.status) == ("memory.trial_8", 1.1, "measured")


def result(who: str, speeds: list[float], variant: str = "float32", failure: str = "") -> dict:
    return {"who": who, "variant": variant, "speeds": speeds, "failure": failure, "peak_bytes": 5}


def test_speeds():
    rows = list(speed.judge([result("distxcept", [20, 30, 40]), result("fit", [10, 10, 10])], "71 px"))
    assert [(row.id, row.value, row.status) for row in rows] == [
        ("speed.distxcept_float32", 30, "measured"),
        ("speed.fit_float32", 10, "measured"),
    ]
    assert rows[1].note == "distxcept is 3.00 × as fast"


def test_a_contestant_that_did_not_run():
    ours, fit = speed.judge([result("distxcept", [], failure="no memory"), result("fit", [5.0])], "71 px")
    assert ours.status == "failed" and ours.note == "no memory"
    assert fit.status == "measured" and fit.value == 5.0
    ours, fit = speed.judge([result("distxcept", [5.0]), result("fit", [], failure="no memory")], "71 px")
    assert (ours.status, fit.status, fit.value) == ("measured", "measured", None), (
        "Keras is not ours to guarantee"
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


def test_the_batch_fits_the_card():
    assert speed.setting_of(gpus(), quick=False) == Setting(299, 32, classes=1000)
    assert speed.setting_of(cpus(), quick=True).image_size == 71


def test_phases_of_an_update():
    told = {"update_seconds": 0.1, "reduce_seconds": 0.02, "apply_seconds": 0.03, "idle_part": 0.125}
    found = {row.id: row.value for row in speed.judge_phases(told, 2)}
    assert found == {
        "speed.update": 100, "speed.forward_backward": 50, "speed.reduce": 20, "speed.apply": 30, "speed.idle": 12.5
    }  # fmt: skip
    assert "speed.idle" not in {row.id for row in speed.judge_phases({**told, "idle_part": None}, 1)}


def test_idle_gaps():
    assert quiet.idle([(0, 10), (5, 20), (30, 40)]) == 0.25
    assert quiet.idle([(0, 10), (2, 3), (4, 5), (10, 20)]) == 0.0


def test_links():
    told = {"reduced_bytes": 100_000_000, "reduced_seconds": 0.05, "tiny_seconds": 1e-5}
    row = links.judge("links.mirrored", "x", told, 2, "NVLink")
    assert row.value == 2.0 and row.unit == "GB/s" and row.data["transport"] == "NVLink"
    assert row.data["link_bytes_per_second"] == pytest.approx(2e9, rel=1e-3)


def test_environment():
    findings = [
        Finding("GPU", "ok", "a card"),
        Finding("host", "warning", "little memory", "buy some"),
        Finding("GPU", "problem", "no driver"),
    ]
    found = {row.id: row for row in environment.judge(findings)}
    assert found["environment.gpu"].status == "failed" and found["environment.gpu"].note == "no driver"
    assert found["environment.host"].status == "measured"
    assert found["environment.host"].note == "little memory (buy some)"


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
