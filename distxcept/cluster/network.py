"""Settings of Horovod and NCCL from the config: variables of theirs, read when they start."""

from distxcept.config.schema import EngineSection
from distxcept.config.size import parse_size

CPU_CYCLE_MILLISECONDS = 5.0
"""Every cycle Horovod's thread waits for those of the other ranks, and MPI waits by spinning. On a CPU the time is the
training's own: at Horovod's 1 ms two ranks of one core each lost a third of it. Longer ones delay small models' updates."""


def network_environ(engine: EngineSection, *, on_gpu: bool) -> dict[str, str]:
    """What the config says. Where the user's environment says otherwise, that wins: it may know the machine better."""
    network = engine.network
    cycle = network.cycle_time or (None if on_gpu else CPU_CYCLE_MILLISECONDS)
    found: dict[str, str | None] = {
        # Of itself Horovod waits for a lost peer for ever.
        "HOROVOD_STALL_CHECK_TIME_SECONDS": f"{engine.peer_timeout:.0f}",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": f"{max(engine.stall_timeout, engine.peer_timeout):.0f}",
        "HOROVOD_FUSION_THRESHOLD": network.fusion_threshold and str(parse_size(network.fusion_threshold)),
        "HOROVOD_CYCLE_TIME": None if cycle is None else f"{cycle:g}",
        "OMPI_MCA_mpi_yield_when_idle": None if on_gpu else "1",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": _switch(network.hierarchical),
        "NCCL_SOCKET_IFNAME": network.interface,
        "NCCL_IB_DISABLE": _switch(None if network.infiniband is None else not network.infiniband),
        "NCCL_DEBUG": network.nccl_debug and network.nccl_debug.upper(),
    }
    return {name: value for name, value in found.items() if value is not None}


def _switch(on: bool | None) -> str | None:
    return None if on is None else str(int(on))
