"""From CUDA's numbers to the driver's, through stand-ins for both libraries, in a child process."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FAKE_CUDA = Path(__file__).parents[2] / "fakes" / "cuda" / "fake_cuda.c"
PROGRAM = """
import json
from distxcept.memory import cuda_cards, nvml
ids = cuda_cards.bus_ids([0, 1, 2])
shown = {ordinal: card.index for ordinal, card in cuda_cards.shown_cards().items()}
print(json.dumps([ids, nvml.find_cards(ids), shown]))
"""


@pytest.fixture(scope="module")
def libraries(fake_nvml_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("cuda")
    compiler = shutil.which("cc")
    assert compiler
    library = str(folder / "libcuda.so.1")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, str(FAKE_CUDA)], check=True
    )
    return f"{folder}:{fake_nvml_folder}"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"CUDA_VISIBLE_DEVICES": "5,0"}, [["0000:06:00.0", "0000:01:00.0"], [5, 0], {"0": 5, "1": 0}]),
        # A card that CUDA has and NVML has not.
        ({"CUDA_VISIBLE_DEVICES": "9,1"}, [["0000:0A:00.0", "0000:02:00.0"], [1], {"1": 1}]),
        ({"CUDA_VISIBLE_DEVICES": "5,0", "FAKE_CUDA_NO_DEVICE": "1"}, [[], [], {}]),
    ],
)
def test_cards_of_the_process(libraries, environ, expected):
    assert ask({"LD_LIBRARY_PATH": libraries, "FAKE_NVML_SCENARIO": "eight", **environ}) == expected


def test_no_library(tmp_path):
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a real NVIDIA driver")
    assert ask({"LD_LIBRARY_PATH": str(tmp_path)}) == [[], [], {}]


def ask(environ: dict[str, str]) -> list:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
