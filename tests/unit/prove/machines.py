"""Machines for tests: what `find_machine` would give."""

from distxcept.memory.nvml import GpuProcess, GpuState
from distxcept.prove.machine import Machine

GIB = 2**30


def card(
    index: int = 0,
    *,
    total: int = 24,
    free: int = 23,
    processes: tuple[GpuProcess, ...] = (),
    busy_percent: int | None = 0,
) -> GpuState:
    return GpuState(
        index=index,
        driver_version="570.1",
        name="RTX 3090",
        memory_total_bytes=total * GIB,
        memory_free_bytes=free * GIB,
        processes=processes,
        utilisation_percent=busy_percent,
    )


def cpus(devices: int = 2, *, no_ranks: str | None = None) -> Machine:
    return Machine("cpu", devices, cores=2, no_ranks=no_ranks)


def gpus(devices: int = 2, *, tf32: bool = True, no_ranks: str | None = None) -> Machine:
    capability = (8, 6) if tf32 else (7, 5)
    cards = tuple(card(index) for index in range(devices))
    return Machine("gpu", devices, cards, (capability,) * devices, 16, no_ranks)
