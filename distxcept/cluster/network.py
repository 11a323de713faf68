"""Settings of Horovod and NCCL from the config: variables of theirs, read when they start."""

from distxcept.config.schema import EngineSection
from distxcept.config.size import parse_size


def network_environ(engine: EngineSection) -> dict[str, str]:
    """What the config says. Where the user's environment says otherwise, that wins: it may know the machine better."""
    network = engine.network
    found: dict[str, str | None] = {
        # Of itself Horovod waits for a lost peer for ever.
        "HOROVOD_STALL_CHECK_TIME_SECONDS": f"{engine.peer_timeout:.0f}",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": f"{max(engine.stall_timeout, engine.peer_timeout):.0f}",
        "HOROVOD_FUSION_THRESHOLD": network.fusion_threshold and str(parse_size(network.fusion_threshold)),
        "HOROVOD_CYCLE_TIME": None if network.cycle_time is None else f"{network.cycle_time:g}",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": _switch(network.hierarchical),
        "NCCL_SOCKET_IFNAME": network.interface,
        "NCCL_IB_DISABLE": _switch(None if network.infiniband is None else not network.infiniband),
        "NCCL_DEBUG": network.nccl_debug and network.nccl_debug.upper(),
    }
    return {name: value for name, value in found.items() if value is not None}


def _switch(on: bool | None) -> str | None:
    return None if on is None else str(int(on))
