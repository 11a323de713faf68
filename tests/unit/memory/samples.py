"""Samples for tests of the telemetry: a card that is fine unless told otherwise."""

from typing import Any

from distxcept.memory.nvml import GpuProcess, GpuState
from distxcept.memory.sample import Moment, Sample, Settled

GIB = 2**30
OWN_PID = 100


def card(index: int = 0, **changes: Any) -> GpuState:
    usual = dict(
        memory_total_bytes=24 * GIB,
        memory_used_bytes=10 * GIB,
        memory_free_bytes=14 * GIB,
        utilisation_percent=97,
        temperature_celsius=70,
        power_watts=300.0,
        power_limit_watts=350.0,
        sm_clock_mhz=1700,
        sm_clock_max_mhz=1800,
        memory_clock_mhz=9000,
        processes=(GpuProcess(OWN_PID, 9 * GIB, "python3"),),
    )
    return GpuState(index=index, driver_version="570", **(usual | changes))


def sample(
    update: int = 1000,
    *cards: GpuState,
    phase: Any = "train",
    micro: int = 8,
    remat: bool = False,
    data_wait: float = 0.0,
    held: int | None = None,
    device_held: tuple[int, ...] = (),
) -> Sample:
    settled = None if held is None else Settled(update=update, host_bytes=held, device_bytes=device_held)
    return Sample(
        time=1.7e9 + update,
        moment=Moment(phase=phase, update=update, micro_batch=micro, remat=remat),
        data_wait=data_wait,
        rss_bytes=2 * GIB,
        cpu_share=0.5,
        cards=cards,
        settled=settled,
    )
