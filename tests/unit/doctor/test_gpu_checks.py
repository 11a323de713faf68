"""Why is my model not training on the GPU: the pure checks, from tables."""

from dataclasses import replace
from typing import Any

import pytest

from distxcept.doctor import cards, gpu
from distxcept.doctor.finding import Finding
from distxcept.memory.nvml import Driver, GpuProcess, GpuState, NvmlUnavailable

GIB = 2**30
CARD = GpuState(
    index=0,
    driver_version="570",
    uuid="GPU-aaaa",
    name="A100",
    compute_capability=(8, 0),
    memory_total_bytes=40 * GIB,
    memory_used_bytes=GIB // 2,
    memory_free_bytes=40 * GIB - GIB // 2,
)
TWO = [CARD, replace(CARD, index=1, uuid="GPU-bbbb")]
BUILD = {
    "is_cuda_build": True,
    "cuda_version": "12.5.1",
    "cudnn_version": "9",
    "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
}
CPU_BUILD = {"is_cuda_build": False}


def statuses(findings: list[Finding]) -> list[str]:
    return [finding.status for finding in findings]


@pytest.mark.parametrize(
    ("value", "status", "visible", "part"),
    [
        ("", "problem", [], "hides every card"),
        ("-1", "problem", [], "hides every card"),
        ("2", "problem", [], "names no card that exists"),
        ("0,5", "warning", [0], "shows only GPU 0"),
        ("5,0", "problem", [], "names no card that exists"),
        ("1,0", "ok", [1, 0], "shows 2 of 2 cards"),
        (" 1 ", "ok", [1], "shows 1 of 2 cards"),
        ("GPU-bb", "ok", [1], "shows 1 of 2 cards"),
        ("GPU-cc", "problem", [], "names no card that exists"),
        ("all", "problem", [], "names no card that exists"),
    ],
)
def test_visible_devices(value: str, status: str, visible: list[int], part: str) -> None:
    (finding,) = gpu.check_visible_devices({"CUDA_VISIBLE_DEVICES": value}, TWO)
    assert (finding.status, finding.data["visible"]) == (status, visible)
    assert part in finding.text and repr(value) in finding.text
    assert finding.status == "ok" or "from 0 to 1" in (finding.remedy or "")


def test_visible_devices_that_are_not_set_say_nothing() -> None:
    assert gpu.check_visible_devices({}, TWO) == []


@pytest.mark.parametrize(
    ("driver_cuda", "build_cuda", "expected"),
    [
        ((12, 8), "12.5.1", []),
        ((13, 0), "12.5.1", []),
        ((12, 5), "12.5.1", []),
        ((12, 0), "12.5.1", ["warning"]),
        ((11, 8), "12.5.1", ["problem"]),
        ((11, 8), None, []),
        (None, "12.5.1", []),
    ],
)
def test_driver_against_the_cuda_of_the_build(driver_cuda: Any, build_cuda: Any, expected: list[str]) -> None:
    findings = gpu.check_driver_for_build({"cuda_version": build_cuda}, Driver("550.1", driver_cuda))
    assert statuses(findings) == expected
    if expected == ["problem"]:
        assert "driver 550.1 is too old: it runs CUDA up to 11.8" in findings[0].text
        assert findings[0].remedy == "install NVIDIA driver 525 or newer"


def test_libraries() -> None:
    needed = gpu.needed_libraries(BUILD)
    assert "libcudnn.so.9" in needed and "libcudart.so.12" in needed
    found = dict.fromkeys(needed, "/somewhere")
    versions = {"nvidia-cudnn-cu12": "9.3.0.75"}
    (fine,) = gpu.check_cuda_libraries(BUILD, TWO, found, versions)
    assert fine.status == "ok" and "nvidia-cudnn-cu12 9.3.0.75" in fine.text
    del found["libcudnn.so.9"]
    (missing,) = gpu.check_cuda_libraries(BUILD, TWO, found, versions)
    assert missing.status == "problem" and missing.data["missing"] == ["libcudnn.so.9"]
    assert "tensorflow[and-cuda]" in (missing.remedy or "")
    assert gpu.check_cuda_libraries(BUILD, [], {}, {}) == []
    assert gpu.check_cuda_libraries(CPU_BUILD, TWO, {}, {}) == []


def test_nccl_matters_from_two_cards_on() -> None:
    assert gpu.check_nccl([CARD], {}) == []
    assert statuses(gpu.check_nccl(TWO, {})) == ["warning"]
    assert statuses(gpu.check_nccl(TWO, {"libnccl.so.2": "/x"})) == ["ok"]


NO_LIBRARY = NvmlUnavailable("no_library", "libnvidia-ml.so.1 not found")
CAUSE = Finding("gpu", "problem", "the driver is too old", "a newer one")
BLACKWELL = {"name": "G:0", "device_name": "B200", "compute_capability": "(10, 0)"}


@pytest.mark.parametrize(
    ("build", "seen", "gpus", "causes", "status", "text"),
    [
        (BUILD, [{"name": "G:0", "device_name": "A100"}], TWO, [], "ok", "training runs on 1 GPU: A100"),
        (BUILD, [{"name": "G:0"}], TWO, [CAUSE], "ok", "training runs on 1 GPU: G:0"),
        (
            BUILD,
            [BLACKWELL],
            TWO,
            [CAUSE],
            "problem",
            "training on 1 of TensorFlow's 1 GPU is expected to fail: B200",
        ),
        (CPU_BUILD, [], TWO, [], "problem", "this TensorFlow was built without CUDA"),
        (CPU_BUILD, [], NO_LIBRARY, [], "warning", "this TensorFlow was built without CUDA"),
        (BUILD, [], TWO, [CAUSE], "problem", "because: the driver is too old"),
        (BUILD, [], TWO, [], "problem", "the driver shows 2 cards, but TensorFlow sees none"),
        (BUILD, [], NO_LIBRARY, [], "ok", "there is no GPU here"),
    ],
)
def test_the_answer(build: Any, seen: Any, gpus: Any, causes: Any, status: str, text: str) -> None:
    (finding,) = gpu.check_training_device(build, seen, gpus, causes)
    assert finding.status == status and text in finding.text
    assert status != "problem" or finding.remedy


def test_no_answer_without_a_look_at_the_devices() -> None:
    assert gpu.check_training_device(BUILD, None, TWO, []) == []


@pytest.mark.parametrize(
    ("driver", "on_bus", "status", "part"),
    [
        (Driver("570.1", (12, 8)), True, "ok", "NVIDIA driver 570.1, up to CUDA 12.8"),
        (NO_LIBRARY, False, "warning", "no NVIDIA GPU found"),
        (NO_LIBRARY, True, "problem", "its driver is not installed"),
        (NvmlUnavailable("no_driver", "not loaded"), False, "problem", "not loaded"),
        (NvmlUnavailable("version_mismatch", "differ"), True, "problem", "differ"),
        (NvmlUnavailable("other", "strange"), True, "problem", "strange"),
    ],
)
def test_driver(driver: Any, on_bus: bool, status: str, part: str) -> None:
    (finding,) = cards.check_driver(driver, on_bus)
    assert finding.status == status and part in finding.text
    assert status == "ok" or finding.remedy


def used(card: GpuState, used_bytes: int, *processes: GpuProcess) -> GpuState:
    free = (card.memory_total_bytes or 0) - used_bytes
    return replace(card, memory_used_bytes=used_bytes, memory_free_bytes=free, processes=processes)


@pytest.mark.parametrize(
    ("card", "expected", "part"),
    [
        (CARD, ["ok"], "39.5 GiB of 40.0 GiB free"),
        (
            used(CARD, 20 * GIB, GpuProcess(7, 19 * GIB, "train"), GpuProcess(8, None, None)),
            ["ok", "warning"],
            "process 7 (train) holds 19.0 GiB; process 8 (name unknown) holds an unknown part",
        ),
        (
            used(CARD, 39 * GIB, GpuProcess(7, 38 * GIB, "t")),
            ["ok", "problem"],
            "process 7 (t) holds 38.0 GiB",
        ),
        (used(CARD, 20 * GIB), ["ok", "warning"], "NVML shows no process"),
        (replace(CARD, temperature_celsius=91), ["ok", "warning"], "91 °C and will slow down"),
        (replace(CARD, ecc_uncorrected_errors=2), ["ok", "problem"], "2 uncorrected memory errors"),
        (
            GpuState(index=3, driver_version="1", lost=True, problem="GPU is lost"),
            ["problem"],
            "GPU 3 does not",
        ),
    ],
)
def test_a_card(card: GpuState, expected: list[str], part: str) -> None:
    findings = cards.check_cards([card])
    assert statuses(findings) == expected
    assert part in findings[-1].text


def test_a_driver_without_cards() -> None:
    assert statuses(cards.check_cards([])) == ["problem"]
