"""A card that the driver loses, before or during a training, with stand-ins for the driver and for CUDA."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from launchers import RANK_ENVIRON, python

from distxcept.memory.budget import GPU_OWN_BYTES

GIB = 2**30

CONFIG = {
    "run": {"updates": 4},
    "model": {"image_size": 71, "width": 0.125, "middle_blocks": 0},
    "data": {"train": {"kind": "synthetic", "samples": 32, "classes": 3}},
    "batch": {"global": 8, "virtual": 8},
}
READ_AT_THE_START = """
from distxcept.cli.main import _report
from distxcept.config.schema import MemorySection
from distxcept.errors import DistxceptError
from distxcept.memory import cuda_cards
from distxcept.training.own_cards import StartReading
import os, sys
reading = StartReading(MemorySection(reserve=sys.argv[1]))
try:
    cuda_cards.LIBRARY = os.environ["FAKE_CUDA"]  # by its path, so that TensorFlow does not find it
    print(reading.limit_bytes([int(number) for number in sys.argv[2:]]))
except DistxceptError as error:
    sys.exit(_report("distxcept train", error))
"""


def run(command: list[str], **environ: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        command,
        env={**os.environ, **RANK_ENVIRON, **environ},
        capture_output=True,
        text=True,
        timeout=300,
    )


def said(done: subprocess.CompletedProcess) -> str:
    """The one line that is ours; TensorFlow says things, too."""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("distxcept train: ")]
    return line.removeprefix("distxcept train: ")


def test_during_the_training(fake_nvml_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cfg.yaml").write_text(yaml.safe_dump(CONFIG))
    command = [*python("lost_card.py", tmp_path / "cfg.yaml", "-q", f"run.dir={tmp_path}")]
    done = run(command, FAKE_NVML_SCENARIO="lost_after_1", LD_LIBRARY_PATH=str(fake_nvml_folder))
    assert done.returncode == 1
    expected = r"GPU 1 of \S+ was lost during the training \(GPU is lost\); reset it .*: it resumes from the last snapshot"
    assert re.fullmatch(expected, said(done))
    assert "Traceback" not in done.stderr


@pytest.fixture
def cuda_and_nvml(fake_nvml_folder: Path, fake_cuda_folder: Path):
    """Reads two cards at the start of a run."""

    def read(scenario: str, reserve: str = "300MiB") -> subprocess.CompletedProcess:
        return run(
            [sys.executable, "-c", READ_AT_THE_START, reserve, "0", "1"],
            FAKE_NVML_SCENARIO=scenario,
            FAKE_CUDA=str(fake_cuda_folder / "libcuda.so.1"),
            LD_LIBRARY_PATH=str(fake_nvml_folder),
            CUDA_VISIBLE_DEVICES="0,1",
        )

    return read


@pytest.mark.parametrize("scenario", ["lost", "lost_later"])
def test_before_the_training(cuda_and_nvml, scenario: str) -> None:
    done = cuda_and_nvml(scenario)
    assert done.returncode == 1
    expected = r"GPU 1 of \S+ cannot be used: .*lost; reset it .* or leave it out \(.*\)"
    assert re.fullmatch(expected, said(done), re.IGNORECASE)


def test_the_limit_is_that_of_the_fullest_card(cuda_and_nvml) -> None:
    done = cuda_and_nvml("healthy")
    assert (done.returncode, done.stdout) == (0, f"{int(39.5 * GIB) - GPU_OWN_BYTES - 300 * 2**20}\n")


def test_no_memory_is_left(cuda_and_nvml) -> None:
    """1 GiB is free on the first card: 600 MiB are for CUDA, 300 are the reserve, and what is left counts in steps."""
    assert cuda_and_nvml("full").stdout == f"{GIB - GPU_OWN_BYTES - 300 * 2**20}\n"
    done = cuda_and_nvml("full", reserve="1GiB")
    assert done.returncode == 4
    assert "no memory is left for the training" in said(done)
    assert "GPU 0 is shared with other-trainer (pid 4242, 38.0 GiB)" in said(done)
