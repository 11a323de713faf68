"""`distxcept doctor` against a fake driver: text, JSON and exit code. TensorFlow's own answers are given, not asked."""

import ctypes
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, os, sys
from distxcept.doctor import child, examination
stages = json.loads(os.environ.pop("TEST_STAGES"))
class Answered:
    def finish(self, timeout_seconds): return child.ProbeReport(stages)
    def stop(self): pass
examination.Probe = Answered
from distxcept.cli.main import main
sys.exit(main(sys.argv[1:]))
"""

BUILD = {
    "is_cuda_build": True,
    "cuda_version": "12.5.1",
    "cudnn_version": "9",
    "cuda_compute_capabilities": ["sm_60", "sm_80", "compute_90"],
}
STAGES = {
    "tensorflow": {"version": "2.21.0", "build": BUILD, "onednn": True},
    "devices": {"gpus": [{"name": f"GPU:{index}", "device_name": "Fake A100"} for index in range(2)]},
    "horovod": {"mpi": True, "gloo": True, "nccl": 23203, "cuda": True, "folder": None},
    "mpi4py": {"missing": "mpi4py", "error": "…"},
}
BLIND = {**STAGES, "devices": {"gpus": []}}
CPU_ONLY = {
    **BLIND,
    "tensorflow": {**STAGES["tensorflow"], "build": {"is_cuda_build": False}, "onednn": False},
}
SEEN_BLACKWELL = {
    **STAGES,
    "devices": {"gpus": [{"device_name": "Fake RTX 5090", "compute_capability": "(12, 0)"}] * 2},
}
SECRET = "hunter2"


@pytest.fixture
def doctor(fake_nvml_folder: Path):
    def run(
        *arguments: str, scenario: str, stages: dict[str, Any] = STAGES, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        environ = {
            **os.environ,
            "FAKE_NVML_SCENARIO": scenario,
            "LD_LIBRARY_PATH": str(fake_nvml_folder),
            "TEST_STAGES": json.dumps(stages),
            "MY_API_TOKEN": SECRET,
            "KERAS_BACKEND": "tensorflow",
            **variables,
        }
        if "CUDA_VISIBLE_DEVICES" not in variables:
            environ.pop("CUDA_VISIBLE_DEVICES", None)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "doctor", *arguments],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode in (0, 1), done.stderr
        assert "Traceback" not in done.stderr
        assert SECRET not in done.stdout + done.stderr
        return done

    return run


# scenario of the driver, TensorFlow's answers, variables → exit code, worst status in the area, parts of the text
SCENES: dict[str, tuple[str, dict[str, Any], dict[str, str], str, list[str]]] = {
    "two healthy cards": (
        "healthy",
        STAGES,
        {},
        "ok",
        [
            "NVIDIA driver 570.86.10, up to CUDA 12.8",
            "GPU 0: Fake A100, 39.5 GiB of 40.0 GiB free, 41 °C, 62 W, 7 % busy, 0 uncorrected ECC errors",
            "GPU 1: Fake A100, 39.5 GiB of 40.0 GiB free, 41 °C, 62 W, 7 % busy, no ECC",
            "training runs on 2 GPU: Fake A100, Fake A100",
        ],
    ),
    "a full card": (
        "full",
        STAGES,
        {},
        "problem",
        [
            "GPU 0: 39.0 GiB of 40.0 GiB are in use: process 4242 (other-trainer) holds 38.0 GiB",
            "→ end that process",
        ],
    ),
    "a lost card": ("lost", STAGES, {}, "problem", ["GPU 1 does not answer: GPU is lost", "→ reboot"]),
    "a hot card": (
        "hot",
        STAGES,
        {},
        "problem",
        ["GPU 0 has 93 °C", "GPU 0 had 3 uncorrected memory errors"],
    ),
    "driver and library differ": (
        "mismatch",
        BLIND,
        {},
        "problem",
        [
            "have different versions",
            "training runs on the CPU, because: the loaded NVIDIA kernel driver",
            "→ reboot",
        ],
    ),
    "no driver": (
        "no_driver",
        BLIND,
        {},
        "problem",
        ["the NVIDIA kernel driver is not loaded", "→ load it (`modprobe nvidia`"],
    ),
    "a driver that is too old": (
        "old_driver",
        BLIND,
        {},
        "problem",
        [
            "training runs on the CPU, because: driver 470.199.02 is too old: it runs CUDA up to 11.4, TensorFlow "
            "was built with CUDA 12.5",
            "→ install NVIDIA driver 525 or newer",
        ],
    ),
    "an older driver of the same CUDA": (
        "minor_driver",
        STAGES,
        {},
        "warning",
        ["driver 525.147.05 is older than TensorFlow's CUDA 12.5", "training runs on 2 GPU"],
    ),
    "no visible card": (
        "healthy",
        BLIND,
        {"CUDA_VISIBLE_DEVICES": "-1"},
        "problem",
        ["training runs on the CPU, because: CUDA_VISIBLE_DEVICES='-1' hides every card", "→ unset"],
    ),
    "a TensorFlow without CUDA": (
        "healthy",
        CPU_ONLY,
        {},
        "problem",
        [
            "training runs on the CPU: this TensorFlow was built without CUDA",
            "oneDNN is off",
            "tensorflow[and-cuda]",
        ],
    ),
    "a card that is too old": (
        "old_card",
        BLIND,
        {},
        "problem",
        ["Fake K80", "TensorFlow needs 6.0 or newer"],
    ),
    "a card that is too new": (
        "new_card",
        SEEN_BLACKWELL,
        {},
        "problem",
        [
            "GPU 1 (Fake RTX 5090) has compute capability 12.0, but this TensorFlow was built for 6.0 to 9.0",
            "→ install a TensorFlow 2.21 built for 12.0, or leave the card out with CUDA_VISIBLE_DEVICES",
            "training on 2 of TensorFlow's 2 GPU is expected to fail: Fake RTX 5090, Fake RTX 5090",
        ],
    ),
    "a card whose kernels the driver compiles": (
        "ptx_card",
        STAGES,
        {},
        "ok",
        ["GPU 0 (Fake H100) has compute capability 9.0: its driver compiles", "training runs on 2 GPU"],
    ),
}


@pytest.mark.parametrize("name", SCENES)
def test_scenes(doctor, name: str) -> None:
    scenario, stages, variables, worst, parts = SCENES[name]
    shown = doctor(scenario=scenario, stages=stages, **variables)
    missing = [part for part in parts if part not in shown.stdout]
    assert not missing, shown.stdout
    answer = json.loads(doctor("--json", scenario=scenario, stages=stages, **variables).stdout)
    of_gpus = [one["status"] for one in answer["findings"] if one["area"] == "gpu"]
    assert worst in of_gpus
    assert worst == "problem" or "problem" not in of_gpus
    assert shown.returncode == (1 if answer["status"] == "problem" else 0)
    everything = " ".join(f"{one['text']} → {one['remedy']}" for one in answer["findings"])
    assert all(part.removeprefix("→ ") in everything for part in parts)


def test_only_visible_cards_are_judged(doctor) -> None:
    shown = doctor("-q", scenario="new_card", stages=STAGES, CUDA_VISIBLE_DEVICES="1")
    assert "GPU 1 (Fake RTX 5090) has compute capability" in shown.stdout
    assert "GPU 0 (Fake RTX 5090) has compute capability" not in shown.stdout


def test_missing_cuda_libraries_are_the_answer(doctor, tmp_path: Path) -> None:
    """Two healthy cards, TensorFlow sees none. On a machine with CUDA in the loader's path this is another scene."""
    with suppress(OSError):
        ctypes.CDLL("libcudart.so.12")
        pytest.skip("CUDA 12 is installed here")
    shown = doctor(scenario="healthy", stages=BLIND)
    assert shown.returncode == 1
    assert "which cannot be found" in shown.stdout
    assert "training runs on the CPU, because: TensorFlow needs" in shown.stdout
    assert "→ pip install 'tensorflow[and-cuda]" in shown.stdout


def test_full_card_in_json_has_pid_and_bytes(doctor) -> None:
    answer = json.loads(doctor("--json", scenario="full").stdout)
    (held,) = [one for one in answer["findings"] if "processes" in one["data"]]
    assert held["data"]["processes"] == [{"pid": 4242, "bytes": 38 * 2**30, "name": "other-trainer"}]
    assert set(held) == {"area", "status", "text", "remedy", "data"}


def test_quiet_shows_only_what_needs_attention(doctor) -> None:
    shown = doctor("-q", scenario="full").stdout
    assert "  ok " not in shown and "process 4242" in shown


def test_known_variables_are_shown(doctor) -> None:
    assert (
        "TF_GPU_ALLOCATOR=cuda_malloc_async"
        in doctor(scenario="healthy", TF_GPU_ALLOCATOR="cuda_malloc_async").stdout
    )
