"""What is left for tensors, and the table of cards."""

import pytest

from distxcept.config.schema import MemorySection
from distxcept.errors import ConfigError
from distxcept.memory.budget import (
    BESIDE_BYTES,
    CPU_MARGIN,
    CPU_OWN_BYTES,
    GPU_MARGIN,
    GPU_OWN_BYTES,
    beside_update,
    cards_budget,
    gpu_budget,
    host_budget,
)
from distxcept.memory.devices import CARDS, find_card
from distxcept.memory.nvml import GpuState

GIB, MIB = 2**30, 2**20


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ({"reserve": "1GiB"}, 7 * GIB - GPU_OWN_BYTES),
        ({"reserve": "0B"}, 8 * GIB - GPU_OWN_BYTES),
        ({"reserve": "0B", "limit": "2GiB"}, 2 * GIB),
        ({"reserve": "0B", "limit": "100GiB"}, 8 * GIB - GPU_OWN_BYTES),
        ({"reserve": "8GiB"}, 0),
    ],
)
def test_of_a_card(memory, expected):
    assert gpu_budget("a card", 8 * GIB, MemorySection(**memory)).tensor_bytes == expected


@pytest.mark.parametrize(
    ("replicas", "processes", "memory", "expected"),
    [
        # half of what is free, where nobody has said how much
        (1, 1, {}, 4 * GIB - CPU_OWN_BYTES),
        (2, 2, {}, 2 * GIB - CPU_OWN_BYTES),
        (2, 1, {}, 2 * GIB - CPU_OWN_BYTES // 2),
        (1, 1, {"limit": "7GiB"}, 7 * GIB - CPU_OWN_BYTES),
        (1, 1, {"limit": "2GiB"}, 2 * GIB - CPU_OWN_BYTES),
        (1, 1, {"limit": "100MiB"}, 0),
    ],
)
def test_of_a_host(replicas, processes, memory, expected):
    found = host_budget(8 * GIB, replicas, processes, MemorySection(**memory))
    assert found.tensor_bytes == expected
    assert ("shared by 2 replicas" in found.name) == (replicas == 2)
    assert ("8.0 GiB free, 50% of it taken" in found.name) == (not memory)


@pytest.mark.parametrize(
    ("budget", "margin"),
    [
        (gpu_budget("a card", 8 * GIB, MemorySection()), GPU_MARGIN),
        (gpu_budget("a card", 8 * GIB, MemorySection(limit="2GiB")), GPU_MARGIN),
        (host_budget(8 * GIB, 1, 1, MemorySection()), CPU_MARGIN),
    ],
)
def test_tensors_and_their_margin_fit_exactly(budget, margin):
    assert budget.margin == margin
    assert budget.usable_bytes * (1 + margin) == pytest.approx(budget.tensor_bytes, abs=2)


def card(index: int, free: int | None) -> GpuState:
    return GpuState(
        index=index,
        driver_version="550",
        name="NVIDIA T4",
        memory_free_bytes=free,
        memory_total_bytes=16 * GIB,
    )


def test_the_fullest_card_decides():
    budget = cards_budget([card(0, 15 * GIB), card(1, 3 * GIB), card(2, None)], MemorySection())
    assert budget.memory_bytes == 3 * GIB
    assert budget.name == "GPU 1 of 3, the fullest, NVIDIA T4: 3.0 GiB of 16.0 GiB free"


def test_some_mib_more_or_less_are_no_other_budget():
    tight, wide = (cards_budget([card(0, 3 * GIB + more)], MemorySection()) for more in (0, 100 * MIB))
    assert tight.allocator_bytes == wide.allocator_bytes == 3 * GIB - GPU_OWN_BYTES - 300 * MIB
    assert "3.1 GiB of 16.0 GiB free" in wide.name


@pytest.mark.parametrize(
    ("memory", "limit"), [({}, None), ({"limit": "2GiB"}, 2 * GIB), ({"limit": "20GiB"}, 20 * GIB)]
)
def test_a_card_of_unknown_memory_is_limited_only_by_the_user(memory, limit):
    budget = cards_budget([card(0, None)], MemorySection(**memory))
    assert (budget.device, budget.allocator_bytes) == ("gpu", limit)
    assert "unknown memory" in budget.name
    assert budget.tensor_bytes > 0  # where trials begin


@pytest.mark.parametrize(
    ("wanted", "name", "gib"),
    [
        ("RTX 3090", "RTX 3090", 24),
        ("rtx3090", "RTX 3090", 24),
        ("3090", "RTX 3090", 24),
        ("3090 Ti", "RTX 3090 Ti", 24),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti", 11),
        ("2080ti", "RTX 2080 Ti", 11),
        ("Tesla T4", "T4", 16),
        ("V100", "V100 16GB", 16),
        ("Tesla V100-SXM2-32GB", "V100 32GB", 32),
        ("a100", "A100 40GB", 40),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB", 80),
        ("A100 80 GiB", "A100 80GB", 80),
        ("h100", "H100 80GB", 80),
        ("A6000", "RTX A6000", 48),
        ("L40S", "L40S", 48),
        ("5090", "RTX 5090", 32),
    ],
)
def test_cards_by_any_usual_name(wanted, name, gib):
    found = find_card(wanted)
    assert (found.name, found.memory_bytes) == (name, gib * GIB)


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("RTX 3099", "did you mean RTX 3090"),
        ("RTX 3090 Tii", "did you mean RTX 3090 Ti"),
        ("toaster", "give its memory instead, like --memory 16GiB"),
        ("", "give its memory instead, like --memory 16GiB"),
    ],
)
def test_an_unknown_card_is_an_error_with_a_hint(wanted, hint):
    with pytest.raises(ConfigError) as error:
        find_card(wanted)
    assert hint in str(error.value)


def test_every_card_is_found_by_its_own_name():
    assert all(find_card(one.name) is one for one in CARDS)


def test_a_limit_counts_what_a_run_holds_beside_its_update():
    host = host_budget(8 * GIB, 1, 1, MemorySection(limit="2GiB"))
    assert host.tensor_bytes - beside_update(host).tensor_bytes == BESIDE_BYTES
    free, card = (
        host_budget(8 * GIB, 1, 1, MemorySection()),
        gpu_budget("card", 8 * GIB, MemorySection(limit="2GiB")),
    )
    assert [beside_update(budget) for budget in (free, card)] == [free, card]
