"""From CUDA's numbers to the driver's, through stand-ins for both libraries, in a child process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GIB = 2**30
PROGRAM = """
import json
from distxcept.memory import cuda_cards
devices = cuda_cards.cuda_devices([0, 1, 2])
places = {number: device.place for number, device in devices.items()}
print(json.dumps({
    "devices": {number: [device.bus_id, device.uuid] for number, device in devices.items()},
    "places": {number: place and [place.index, place.mig] for number, place in places.items()},
    "read": {n: [str(card), card.memory_free_bytes, card.problem] for n, card in cuda_cards.read_devices().items()},
    "shown": list(cuda_cards.shown_cards()),
}))
"""


@pytest.fixture
def ask(fake_nvml_folder: Path, fake_cuda_folder: Path):
    def run(visible: str, scenario: str = "eight", *, nvml: bool = True, **environ: str) -> dict:
        folders = f"{fake_cuda_folder}:{fake_nvml_folder}" if nvml else str(fake_cuda_folder)
        return run_program(
            {
                "LD_LIBRARY_PATH": folders,
                "FAKE_NVML_SCENARIO": scenario,
                "CUDA_VISIBLE_DEVICES": visible,
                **environ,
            }
        )

    return run


def run_program(environ: dict[str, str]) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_cuda_numbers_what_it_is_shown(ask):
    found = ask("5,0")
    assert found["devices"] == {
        "0": ["0000:06:00.0", "00000000-0000-0000-0000-000000000005"],
        "1": ["0000:01:00.0", "00000000-0000-0000-0000-000000000000"],
    }
    assert found["places"] == {"0": [5, None], "1": [0, None]}
    assert found["read"]["0"] == ["GPU 5", 40 * GIB - GIB // 2, None]
    assert found["shown"] == [0, 1]


def test_two_slices_of_a_card_differ_by_uuid_and_have_a_memory_each(ask):
    found = ask("MIG-1,MIG-0,1", "mig")
    (bus, first), (other_bus, second), _ = found["devices"].values()
    assert bus == other_bus and first != second
    assert found["places"] == {"0": [0, 1], "1": [0, 0], "2": [1, None]}
    assert [free for _, free, _ in found["read"].values()] == [4 * GIB, 5 * GIB, 40 * GIB - GIB // 2]
    assert found["read"]["0"][0] == "GPU 0 MIG 1"


@pytest.mark.parametrize(
    ("visible", "scenario", "nvml"),
    [
        ("0", "healthy", False),  # a container without NVML
        ("0", "shared_memory", True),
        ("9", "healthy", True),  # a card that CUDA has and NVML has not
        ("MIG-4", "mig", True),  # a slice that NVML does not find
    ],
)
def test_cuda_is_asked_for_memory_that_nvml_does_not_tell(ask, visible, scenario, nvml):
    if not nvml and Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a real NVIDIA driver")
    ((_, free, problem),) = ask(visible, scenario, nvml=nvml)["read"].values()
    assert (free, problem) == (30 * GIB, None)


@pytest.mark.parametrize("scenario", ["lost", "lost_later"])
def test_a_lost_card_is_not_shown(ask, scenario):
    found = ask("0,1", scenario)
    assert found["shown"] == [0]
    assert "lost" in found["read"]["1"][2].lower()


def test_nothing_is_known_without_a_device_or_a_library(ask, tmp_path):
    nothing = {"devices": {}, "places": {}, "read": {}, "shown": []}
    assert ask("5,0", FAKE_CUDA_NO_DEVICE="1") == nothing
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a real NVIDIA driver")
    assert run_program({"LD_LIBRARY_PATH": str(tmp_path)}) == nothing
