"""Engines: how replicas run and how their sums meet. `create_engine` is the one place that chooses."""

from distxcept.cluster import Placement
from distxcept.config.schema import EngineSection
from distxcept.engines.base import Engine
from distxcept.engines.devices import CardLimit, no_limit
from distxcept.engines.numerics import set_numerics
from distxcept.errors import ConfigError, on_all_ranks

__all__ = ["Engine", "create_engine"]

BUILD_FOR_GPUS = "launch/build_horovod.sh --gpu"
INSTALL_HOROVOD = "bash launch/build_horovod.sh, then pip install 'distxcept[horovod]'"


def create_engine(config: EngineSection, placement: Placement, *, limit: CardLimit = no_limit) -> Engine:
    """Eager, once a process, before anything touches a device."""
    set_numerics(config)
    name = _choose(config, placement) if config.name == "auto" else config.name
    if placement.is_distributed and name != "horovod":
        raise ConfigError(
            f"{placement.size} tasks were launched, but engine.name is {name}, which runs in one process: every task "
            "would train on its own; set engine.name=horovod (or auto), or launch one task"
        )
    return _ENGINES[name](config, placement, limit)


def _choose(config: EngineSection, placement: Placement) -> str:
    from distxcept.engines.devices import count_gpus

    if placement.is_distributed:
        return "horovod"
    if config.devices == "auto":
        return "mirrored" if count_gpus() > 1 else "single"
    wanted = config.devices if isinstance(config.devices, int) else len(config.devices)
    return "mirrored" if wanted > 1 else "single"


def _single(config: EngineSection, placement: Placement, limit: CardLimit) -> Engine:
    from distxcept.engines.devices import prepare_devices
    from distxcept.engines.single import SingleEngine

    if (
        config.devices != "auto"
        and config.devices != 1
        and (isinstance(config.devices, int) or len(config.devices) > 1)
    ):
        raise ConfigError(
            f"engine.name is single, but engine.devices is {config.devices}; use mirrored, or one device"
        )
    devices = 1 if config.devices == "auto" else config.devices
    (device,) = prepare_devices(devices, config.threads, limit=limit)
    return SingleEngine(device, jit=config.compiles)


def _mirrored(config: EngineSection, placement: Placement, limit: CardLimit) -> Engine:
    from distxcept.engines.devices import prepare_devices
    from distxcept.engines.mirrored import MirroredEngine

    devices = prepare_devices(config.devices, config.threads, limit=limit)
    return MirroredEngine(devices, jit=config.compiles)


def _horovod(config: EngineSection, placement: Placement, limit: CardLimit) -> Engine:
    if placement.is_distributed and placement.wire_up is None:
        raise ConfigError(
            f"{placement.launcher} started {placement.size} tasks without MPI, so they cannot find each other; "
            "use srun --mpi=pmix"
        )
    try:
        from distxcept.engines.horovod import HorovodEngine, has_nccl, start_horovod

        local_rank = start_horovod()
    except ImportError as error:
        raise ConfigError(
            f"{placement.size} tasks were launched, but Horovod cannot be imported ({error}); "
            f"install it: {INSTALL_HOROVOD}"
        ) from error
    from distxcept.engines.devices import prepare_rank_device

    device = prepare_rank_device(config, placement, local_rank, limit=limit)
    if device.startswith("GPU") and placement.is_distributed and config.require_nccl and not has_nccl():
        message = (
            "Horovod was built without NCCL, so every update would copy all gradients from the GPUs to the host and back; "
            f"build it for GPUs: {BUILD_FOR_GPUS} (engine.require_nccl=false trains all the same)"
        )
        raise on_all_ranks(ConfigError(message))
    engine = HorovodEngine(device, config.compression, jit=config.compiles)
    if engine.ranks != placement.size:
        raise ConfigError(
            f"the launcher started {placement.size} tasks, but Horovod sees {engine.ranks}: it was built with another "
            f"MPI than {placement.launcher} uses; rebuild it: {INSTALL_HOROVOD}"
        )
    return engine


_ENGINES = {"single": _single, "mirrored": _mirrored, "horovod": _horovod}
