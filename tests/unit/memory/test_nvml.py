"""The NVML layer through the real nvidia-ml-py, against a driver library of ours, in a child process each."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GIB = 2**30

PROGRAM = """
import dataclasses, json, sys
from distxcept.memory import nvml
def plain(answer):
    if isinstance(answer, list):
        return [dataclasses.asdict(gpu) for gpu in answer]
    return {"type": type(answer).__name__, **dataclasses.asdict(answer)}
buses = ["0000:03:00.0", "0000:1f:00.0", "00000000:01:00.0"]
found = [place for bus in buses if (place := nvml.find_card(bus, None))]
slices = [nvml.find_card("0000:01:00.0", f"00000000-0000-0000-0001-00000000000{k}") for k in range(3)]
print(json.dumps({"driver": plain(nvml.read_driver()), "gpus": plain(nvml.read_gpus()), "again": plain(nvml.read_gpus()),
                  "found": [place.index for place in found], "of_found": plain(nvml.read_cards(found)),
                  "slices": [place and [place.index, place.mig] for place in slices],
                  "of_slices": plain(nvml.read_cards([place for place in slices if place and place.mig is not None])),
                  "missing": nvml.missing_cards(),
                  "lost": [nvml.is_lost(f"0000:0{bus}:00.0") for bus in (1, 2)],
                  "tensorflow": "tensorflow" in sys.modules}))
"""


@pytest.fixture
def ask(fake_nvml_folder: Path):
    def run(scenario: str, library_path: Path | None = fake_nvml_folder) -> dict[str, Any]:
        environ = {**os.environ, "FAKE_NVML_SCENARIO": scenario, "LD_LIBRARY_PATH": str(library_path or "")}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_two_healthy_cards(ask) -> None:
    answer = ask("healthy")
    assert answer["driver"] == {"type": "Driver", "version": "570.86.10", "cuda_version": [12, 8]}
    assert answer["gpus"] == [
        {
            "index": index,
            "mig": None,
            "driver_version": "570.86.10",
            "lost": False,
            "problem": None,
            "uuid": f"GPU-00000000-0000-0000-0000-00000000000{index}",
            "name": "Fake A100",
            "compute_capability": [8, 0],
            "memory_total_bytes": 40 * GIB,
            "memory_used_bytes": GIB // 2,
            "memory_free_bytes": 40 * GIB - GIB // 2,
            "processes": [],
            "temperature_celsius": 41,
            "power_watts": 61.5,
            "power_limit_watts": 400.0,
            "utilisation_percent": 7,
            "sm_clock_mhz": 1380,
            "sm_clock_max_mhz": 1410,
            "memory_clock_mhz": 1215,
            "throttling": [],  # idle is none
            "ecc_uncorrected_errors": [0, None][index],  # the second card has no ECC
        }
        for index in range(2)
    ]
    assert answer["again"] == answer["gpus"]
    assert not answer["tensorflow"]


def test_a_full_card_names_the_process_but_not_its_arguments(ask) -> None:
    first, second = ask("full")["gpus"]
    assert first["memory_free_bytes"] == GIB
    assert first["processes"] == [{"pid": 4242, "used_bytes": 38 * GIB, "name": "other-trainer"}]
    assert second["processes"] == []


@pytest.mark.parametrize("scenario", ["lost", "lost_later"])
def test_a_lost_card_is_reported_beside_the_good_one(ask, scenario: str) -> None:
    first, second = ask(scenario)["gpus"]
    assert (first["lost"], first["memory_total_bytes"]) == (False, 40 * GIB)
    assert (second["lost"], second["problem"]) == (True, "GPU is lost")
    assert second["memory_total_bytes"] is None


def test_a_card_that_cannot_be_found_any_more_is_lost(ask) -> None:
    answer = ask("lost")
    assert answer["lost"] == [False, True]
    (sentence,) = answer["missing"]
    assert sentence.startswith("GPU 1 is lost (GPU is lost); the run does without it")
    answer = ask("healthy")
    assert (answer["lost"], answer["missing"]) == ([False, False], [])


def test_slices_of_a_card_have_a_memory_each(ask) -> None:
    answer = ask("mig")
    assert answer["slices"] == [[0, 0], [0, 1], None]
    first, second = answer["of_slices"]
    assert [one["memory_free_bytes"] for one in (first, second)] == [5 * GIB, 4 * GIB]
    assert (first["index"], first["mig"], first["name"]) == (0, 0, "Fake A100 MIG 1g.5gb")
    whole = answer["gpus"][0]  # of which a user without privileges is told no memory
    assert (whole["problem"], whole["memory_total_bytes"]) == (None, None)
    assert ask("healthy")["slices"] == [[0, None]] * 3


def test_a_hot_card_is_throttled(ask) -> None:
    first, second = ask("hot")["gpus"]
    assert first["throttling"] == ["hardware_slowdown", "thermal_software"]
    assert (first["sm_clock_mhz"], second["throttling"]) == (705, [])


def test_cards_are_found_by_their_place_on_the_bus(ask) -> None:
    answer = ask("eight")
    assert answer["found"] == [2, 0]
    assert [gpu["index"] for gpu in answer["of_found"]] == [2, 0]
    assert len(answer["gpus"]) == 8


def test_a_card_that_shares_the_hosts_memory_has_no_figures_but_works(ask) -> None:
    first, _ = ask("shared_memory")["gpus"]
    assert (first["lost"], first["problem"], first["name"]) == (False, None, "Fake A100")
    assert first["memory_total_bytes"] is None


@pytest.mark.parametrize(
    ("scenario", "reason", "text"),
    [
        ("mismatch", "version_mismatch", "have different versions"),
        ("no_driver", "no_driver", "not loaded"),
    ],
)
def test_a_driver_that_does_not_answer(ask, scenario: str, reason: str, text: str) -> None:
    answer = ask(scenario)
    for question in ("driver", "gpus"):
        assert answer[question]["type"] == "NvmlUnavailable"
        assert answer[question]["reason"] == reason
        assert text in answer[question]["text"]


def test_no_library(ask, tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a real NVIDIA driver")
    assert ask("healthy", library_path=tmp_path)["gpus"]["reason"] == "no_library"


def test_a_driver_without_cards(ask) -> None:
    assert ask("bare")["gpus"] == []
