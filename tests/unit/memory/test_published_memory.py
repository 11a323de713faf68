"""The forecast of a GPU process against published measurements of Xception. All of them are of PyTorch's allocator.

A100 40 GB, 224 px, float32, Adam: `workloads/ehsan-summary.csv` of github.com/itu-rad/CARMA, commit 58779f8. Live tensors
are those of a forward and backward pass, counted by FakeTensor without optimizer slots; used is what nvidia-smi showed.
RTX 3090, 24 GiB, 299 px, mixed precision: timm's `benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv`: Xception trained with
batch 128, and batch 192 failed.
"""

from dataclasses import dataclass
from statistics import mean

import pytest

from distxcept.config.optimizer import OptimizerSection
from distxcept.config.schema import MemorySection
from distxcept.memory.budget import GPU_MARGIN, GPU_OWN_BYTES, gpu_budget
from distxcept.memory.devices import find_card
from distxcept.memory.estimate import Work, estimate
from distxcept.model.layout import Layout

MIB = 2**20
BOUND = 0.03
"""Stated in docs/memory.md."""


@dataclass(frozen=True)
class Published:
    batch: int
    used_mib: int
    live_mib: int

    @property
    def work(self) -> Work:
        return update_of(self.batch, image_size=224, optimizer=OptimizerSection(name="adam"))


A100 = [Published(32, 5918, 4166), Published(64, 11106, 8325), Published(128, 21236, 16642)]


def update_of(batch: int, **changes) -> Work:
    return Work(layout=Layout(classes=1000), micro_batch=batch, virtual_batch=batch, **changes)


def forecast_mib(row: Published, margin: float = GPU_MARGIN) -> float:
    return (GPU_OWN_BYTES + (1 + margin) * estimate(row.work).total_bytes) / MIB


@pytest.mark.parametrize("row", A100, ids=lambda row: f"batch {row.batch}")
def test_live_tensors(row):
    found = estimate(row.work)
    assert (found.total_bytes - found.kinds["slots"]) / MIB == pytest.approx(row.live_mib, rel=0.025)


@pytest.mark.parametrize("row", A100, ids=lambda row: f"batch {row.batch}")
def test_the_process(row):
    assert forecast_mib(row) == pytest.approx(row.used_mib, rel=BOUND)
    assert forecast_mib(row, margin=0.05) < (1 - 4 * BOUND) * row.used_mib, "without the margin it is too low"


def test_the_margin_is_that_of_these_rows():
    """What they used beside CUDA, against their tensors; a row that is left out is within the bound of the others."""
    margins = [(row.used_mib * MIB - GPU_OWN_BYTES) / estimate(row.work).total_bytes - 1 for row in A100]
    assert mean(margins) == pytest.approx(GPU_MARGIN, abs=0.01)
    for number, row in enumerate(A100):
        others = mean(margins[:number] + margins[number + 1 :])
        assert forecast_mib(row, others) == pytest.approx(row.used_mib, rel=BOUND)


@pytest.mark.parametrize(("batch", "fits"), [(128, True), (192, False)])
@pytest.mark.parametrize("memory", [{}, {"reserve": "0B"}], ids=["reserve", "no reserve"])
def test_what_a_card_of_24_gib_trains(batch, fits, memory):
    budget = gpu_budget("RTX 3090", find_card("RTX 3090").memory_bytes, MemorySection(**memory))
    update = update_of(batch, image_size=299, precision="mixed_float16")
    assert (estimate(update).total_bytes <= budget.usable_bytes) == fits


@pytest.mark.parametrize("row", A100, ids=lambda row: f"batch {row.batch}")
def test_what_an_a100_of_40_gib_trains(row):
    budget = gpu_budget("A100 40GB", find_card("A100 40GB").memory_bytes, MemorySection())
    assert estimate(row.work).total_bytes <= budget.usable_bytes
