"""The audit of the traced update over all features: GPU kernels, operations, copies, packs, traces.

The devices of a case are logical CPUs, and one more is the host. The model is built as for GPUs.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from launchers import MPIRUN, python, run, skip_without

SMALL = {"width": 0.0625, "middle_blocks": 0}
FEATURES: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}},
    "plain sgd": {"optimizer": {"name": "sgd", "momentum": 0.0, "ema": None}},
    "rmsprop": {"optimizer": {"name": "rmsprop", "momentum": 0.9}},
    "adam": {"optimizer": {"name": "adam", "clip_norm": 1.0, "weight_decay": 0.01}},
    "adamw": {"optimizer": {"name": "adamw", "weight_decay": 0.01}},
    "lamb": {"optimizer": {"name": "lamb", "weight_decay": 0.01}},
    "pruning": {"optimizer": {"name": "sgd", "pruning": {"final_sparsity": 0.5, "end_update": 9}}},
    "mixed_float16": {"precision": "mixed_float16"},
    "mixed_bfloat16": {"precision": "mixed_bfloat16"},
    "float64": {"precision": "float64"},
    "dropout and smoothing": {"model": {**SMALL, "dropout": 0.5, "label_smoothing": 0.1}},
    "mixup and cutmix": {
        "data": {
            "train": {"kind": "synthetic", "samples": 8, "classes": 5},
            "augment": {"mixup": 0.4, "cutmix": 1.0},
        }
    },
    "frozen backbone": {"model": {**SMALL, "freeze": "backbone"}},
    "frozen to a block": {"model": {**SMALL, "freeze": "block3"}},
    "rematerialised": {"memory": {"remat": "on"}},
    "ordered": {"engine": {"reduction": "ordered"}},
    "compiled by XLA": {"engine": {"jit": "on"}},
    "several virtual batches": {"batch": {"global": 24, "virtual": 2, "micro": 6}},
}
PADDED = ("adam", "mixed_float16", "rematerialised", "several virtual batches")


def case(
    devices: int, overrides: dict[str, Any], *, padded: bool = False, keras: bool = False, early: bool = False
) -> dict[str, Any]:
    return {"devices": devices, "overrides": overrides, "padded": padded, "keras": keras, "early": early}


def audits(cases: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        python("audits.py"),
        input=json.dumps(list(cases.values())),
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True))


def counts(audit: dict[str, Any]) -> dict[str, int]:
    return {row["what"]: row["count"] for row in audit["rows"]}


@pytest.fixture(scope="module")
def small() -> dict[str, dict[str, Any]]:
    with_model = {name: {"model": SMALL, **overrides} for name, overrides in FEATURES.items()}
    cases = {name: case(2, overrides, early=name in PADDED) for name, overrides in with_model.items()}
    cases |= {f"{name}, padded": case(2, with_model[name], padded=True) for name in PADDED}
    return audits(cases)


@pytest.mark.parametrize("name", [*FEATURES, *(f"{name}, padded" for name in PADDED)])
def test_every_operation_has_a_gpu_kernel_and_nothing_crosses(small: dict[str, dict[str, Any]], name: str):
    assert not small[name]["problems"]
    found = counts(small[name])
    assert found["traces of the micro step"] == 1
    assert found["copies between devices in a micro step"] == found["copies to the host in a micro step"] == 0
    assert found["copies from the host in a micro step"] >= 3, "images, labels and weights of the samples"
    if name in PADDED:
        assert len(small[name]["early"]) > 1, "packs of kernels"


@pytest.fixture(scope="module")
def full() -> dict[str, dict[str, Any]]:
    """The paper's depth and width."""
    groups = {"batch": {"global": 96, "virtual": 2, "micro": 16}}
    return audits(
        {
            "two": case(2, {}, keras=True, early=True),
            "one": case(1, {}, keras=True),
            "groups": case(2, groups, keras=True),
            "float16": case(2, {"precision": "mixed_float16", **groups}, keras=True),
            "masked": case(2, groups, padded=True, keras=True),
        }
    )


@pytest.mark.parametrize("name", ["one", "two", "groups", "float16", "masked"])
def test_operations_of_the_whole_network(full: dict[str, dict[str, Any]], name: str):
    """At most 1.1 × Keras in a micro step, also with 8 virtual batches in it; at most 500 for reduce and apply."""
    assert not full[name]["problems"]
    found = counts(full[name])
    print(name, found)
    assert (
        found["operations of a micro step"] > 300
        and found["operations of reduce and apply, on each device"] > 100
    )
    assert found["operations of Keras' Xception, forward and backward"] > 1000
    if name != "one":
        assert found["bytes of the largest pack that is reduced"] > 16 * 2**20


def test_packs_of_the_whole_network_leave_one_after_the_other(full: dict[str, dict[str, Any]]):
    first, *_, last = full["two"]["early"]
    assert first < last / 2, "the first reduction does not wait for half of the backward pass"


@pytest.mark.parametrize("reduction", ["fast", "ordered"])
def test_horovod(tmp_path: Path, reduction: str):
    skip_without("mpirun", "horovod")
    asked = tmp_path / "cases.json"
    overrides = {"model": SMALL, "engine": {"reduction": reduction}}
    asked.write_text(json.dumps([case(1, overrides, early=True)]))
    done = run([*MPIRUN, "-np", "2", *python("audits.py", asked)])
    assert done.returncode == 0, done.stderr[-4000:]
    (answer,) = json.loads(done.stdout.splitlines()[-1])
    assert not answer["problems"]
    assert counts(answer)["bytes of the largest pack that is reduced"] > 10_000
    assert (len(answer["early"]) > 1) if reduction == "fast" else (answer["early"] is None)


def test_the_audit_sees_what_it_is_there_for():
    """Each mistake is one that was really made, or could be: the audit has to name it."""
    done = subprocess.run(python("spoiled_audits.py"), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert any("no GPU kernel" in problem for problem in found["on_cpu_only"])
    assert any("runs on the host" in problem for problem in found["on_the_host"])
    assert any("copies to the host" in problem for problem in found["on_the_host"])
    assert any("cross between devices" in problem for problem in found["untied"])
    assert any("copies to the host" in problem for problem in found["in_host_memory"])
    assert any("as their gradients become ready" in problem for problem in found["held_back"])
    assert any("is reduced, more than" in problem for problem in found["one_large_pack"])
