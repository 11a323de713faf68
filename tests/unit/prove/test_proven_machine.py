"""The devices of `distxcept prove`: too small, busy, or not there at all is one clear line."""

import os
import subprocess
import sys

import pytest
from machines import GIB, card, cpus, gpus

from distxcept.doctor.child import ProbeReport
from distxcept.errors import ConfigError, DoesNotFitError
from distxcept.memory.nvml import GpuProcess
from distxcept.prove.machine import (
    BUSY_PERCENT,
    _capability,
    check_cards,
    check_host,
    horovod_problem,
    other_users,
)


def test_a_free_card_is_fine():
    check_cards([card(0), card(1)], quick=False)


def test_a_busy_card_is_named_with_who_uses_it():
    busy = card(1, free=1, processes=(GpuProcess(7, 2 * GIB, "small"), GpuProcess(8, 20 * GIB, "python")))
    with pytest.raises(DoesNotFitError) as error:
        check_cards([card(0), busy], quick=True)
    assert str(error.value).startswith(
        "GPU 1 (RTX 3090) has 1.0 GiB of 24.0 GiB free, but prove --quick needs 3.0 GiB"
    )
    assert "process 8 (python) holds 20.0 GiB" in str(error.value)


def test_others_on_the_cards():
    """A desktop, or what the driver cannot tell, is nobody; one card may be used in both ways."""
    desktop = card(0, processes=(GpuProcess(6, GIB // 8, "Xorg"),), busy_percent=BUSY_PERCENT - 1)
    assert other_users([desktop, card(1, busy_percent=None)]) == []
    used = card(1, processes=(GpuProcess(8, 2 * GIB, "python"),), busy_percent=97)
    assert other_users([desktop, used, card(2, busy_percent=BUSY_PERCENT)]) == [
        "GPU 1 was 97 % busy",
        "GPU 1 is shared with python (pid 8, 2.0 GiB)",
        f"GPU 2 was {BUSY_PERCENT} % busy",
    ]


def test_a_small_card():
    small = card(0, total=4, free=4)
    check_cards([small], quick=True)
    with pytest.raises(DoesNotFitError, match=r"has 4.0 GiB of memory, but prove needs 6.0 GiB; try --quick"):
        check_cards([small], quick=False)


def test_a_small_host():
    check_host(8 * GIB, 2, quick=False)
    with pytest.raises(DoesNotFitError, match=r"this host has 1.0 GiB of free memory"):
        check_host(GIB, 2, quick=True)
    with pytest.raises(ConfigError, match="16 logical CPUs at most"):
        check_host(8 * GIB, 17, quick=True)


def test_horovod_that_cannot_be_used():
    def report(**told) -> ProbeReport:
        return ProbeReport({"horovod": told})

    assert horovod_problem(report(nccl=23203), on_gpu=True) is None
    assert horovod_problem(report(nccl=0), on_gpu=False) is None
    assert "without NCCL" in (horovod_problem(report(nccl=0), on_gpu=True) or "")
    assert "cannot be imported: OSError" in (horovod_problem(report(error="OSError"), on_gpu=False) or "")


def test_capabilities():
    assert _capability("(8, 6)") == (8, 6) and _capability("") == (0, 0) and _capability("x") == (0, 0)
    assert gpus(tf32=True).tf32 and not gpus(tf32=False).tf32 and not cpus().tf32
    assert str(gpus(2)) == "2 × RTX 3090" and str(cpus(2)) == "2 logical CPUs on 2 cores"


@pytest.mark.parametrize(
    ("scenario", "options", "code", "words"),
    [
        ("full", [], 4, ["GPU 0", "of 40.0 GiB free", "process 4242"]),
        ("healthy", ["--devices", "3"], 2, ["--devices is 3, but this machine has 2 usable GPUs"]),
    ],
)
def test_with_the_driver_of_a_machine(
    fake_nvml_folder, fake_cuda_folder, tmp_path, scenario, options, code, words
):
    environ = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "0,1",
        "LD_LIBRARY_PATH": f"{fake_nvml_folder}:{fake_cuda_folder}",
        "FAKE_NVML_SCENARIO": scenario,
    }
    command = [sys.executable, "-m", "distxcept.cli.main", "prove", "--output", str(tmp_path), *options]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert all(word in line for word in words), line
