"""Which cards TensorFlow's build has kernels for, from a table; and that the installed wheel is understood."""

import importlib.util
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distxcept.doctor.compute_capability import check_compute_capability, support, unusable
from distxcept.memory.nvml import Driver, GpuState

CARD = GpuState(index=1, driver_version="570", name="Some Card", compute_capability=(8, 0))
WHEEL = ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"]
BUILD = {"cuda_version": "12.5.1", "cuda_compute_capabilities": WHEEL}


@pytest.mark.parametrize(
    ("built", "card", "expected"),
    [
        (WHEEL, (3, 7), "too old"),
        (WHEEL, (5, 2), "too old"),
        (WHEEL, (6, 0), "machine code"),
        (WHEEL, (6, 1), "machine code"),
        (WHEEL, (7, 5), "machine code"),
        (WHEEL, (8, 6), "machine code"),
        (WHEEL, (8, 9), "machine code"),
        (WHEEL, (9, 0), "ptx"),
        (WHEEL, (10, 0), "too new"),
        (WHEEL, (12, 0), "too new"),
        (WHEEL, (12, 1), "too new"),
        ([*WHEEL, "compute_120"], (12, 0), "ptx"),
        ([*WHEEL, "sm_120"], (12, 1), "machine code"),
        ([*WHEEL, "sm_120a"], (12, 0), "machine code"),
        ([*WHEEL, "sm_90"], (9, 0), "machine code"),
        (["sm_70", "sm_86"], (8, 0), "too old"),
        (["8.0"], (8, 0), "unknown"),
        ([], (12, 0), "unknown"),
        (WHEEL, None, "unknown"),
    ],
)
def test_support(built: list[str], card: Any, expected: str) -> None:
    assert support({"cuda_compute_capabilities": built}, card) == expected


@pytest.mark.parametrize(
    ("capability", "driver_cuda", "status", "part"),
    [
        ((3, 7), (12, 8), "problem", "compute capability 3.7; TensorFlow needs 6.0 or newer"),
        (
            (10, 0),
            (13, 0),
            "problem",
            "compute capability 10.0, but this TensorFlow was built for 6.0 to 9.0",
        ),
        ((12, 0), (13, 0), "problem", "CUDA_ERROR_INVALID_PTX"),
        ((9, 0), (12, 8), "ok", "at the first start; that needs a driver for CUDA 12.5 or newer"),
        ((9, 0), (12, 5), "ok", "at the first start"),
        ((9, 0), (12, 4), "problem", "which needs a driver for CUDA 12.5 or newer"),
        ((9, 0), None, "ok", "that needs a driver for CUDA 12.5 or newer"),
    ],
)
def test_a_card(capability: tuple[int, int], driver_cuda: Any, status: str, part: str) -> None:
    card, driver = replace(CARD, compute_capability=capability), Driver("570.1", driver_cuda)
    (finding,) = check_compute_capability(BUILD, [card], driver)
    assert finding.status == status and part in finding.text and "GPU 1 (Some Card)" in finding.text
    assert (status == "ok") == (finding.remedy is None)


def test_most_cards_need_no_word() -> None:
    assert check_compute_capability(BUILD, [CARD, replace(CARD, compute_capability=None)], None) == []


def test_gpus_as_tensorflow_lists_them() -> None:
    cards = [{"compute_capability": text} for text in ("(12, 0)", "(8, 6)", "(3, 7)")]
    assert unusable(BUILD, [*cards, {"name": "GPU:3"}]) == 2


def test_the_installed_wheel_is_understood() -> None:
    """Its list of architectures, read without loading TensorFlow."""
    spec = importlib.util.find_spec("tensorflow")
    assert spec is not None and spec.submodule_search_locations
    file = Path(spec.submodule_search_locations[0], "python/platform/build_info.py")
    build = runpy.run_path(str(file))["build_info"]
    if not build["is_cuda_build"]:
        pytest.skip("this TensorFlow was built without CUDA")
    assert support(build, (8, 0)) == "machine code"
    assert support(build, (1, 0)) == "too old"
    assert support(build, (99, 0)) == "too new"
