"""Which device a plan is for, and how many of them: a card that is elsewhere, or those of this machine. No TensorFlow."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distxcept.cluster.compute import runs_on_gpu
from distxcept.config.schema import Config
from distxcept.data import host
from distxcept.errors import ConfigError
from distxcept.memory.budget import Budget, cards_budget, gpu_budget, host_budget
from distxcept.memory.cuda_cards import shown_cards
from distxcept.memory.estimate import EngineName
from distxcept.memory.nvml import GpuState


@dataclass(frozen=True)
class Target:
    """The device to plan for, the number of replicas, and the engine that joins them."""

    budget: Budget
    replicas: int
    engine: EngineName
    cards: Sequence[GpuState]
    """Of this machine, as far as the run will use them."""
    device: str = "GPU:0"
    """The first of them, as CUDA counts."""


def card_elsewhere(config: Config, text: str, memory_bytes: int, world: int | None) -> Target:
    engine, replicas = _engine(config, world, cards=1)
    return Target(gpu_budget(text, memory_bytes, config.memory), replicas, engine, [])


def this_machine(
    config: Config, world: int | None, per_node: int | None, environ: Mapping[str, str] = os.environ
) -> Target:
    shown = shown_cards()
    if not runs_on_gpu(config, environ, len(shown)):
        shown = {}
    engine, replicas = _engine(config, world, cards=len(shown))
    used = _used_cards(config, engine, replicas, sorted(shown))
    cards = [shown[ordinal] for ordinal in used]
    if cards:
        return Target(cards_budget(cards, config.memory), replicas, engine, cards, f"GPU:{used[0]}")
    # Ranks of a host without a GPU have a core each at least; the others are elsewhere.
    here = min(replicas, per_node or host.usable_cores()) if engine == "horovod" else replicas
    processes = 1 if engine == "mirrored" else here
    budget = host_budget(host.free_memory(), here, processes, config.memory)
    return Target(budget, replicas, engine, [], "CPU:0")


def _used_cards(config: Config, engine: EngineName, replicas: int, shown: Sequence[int]) -> Sequence[int]:
    """CUDA's numbers of those that the run will use: the ones that are named, or the first, one for each replica here."""
    names = config.engine.devices
    if isinstance(names, (str, int)) or engine == "horovod":
        return shown[:replicas]
    by_name = {f"GPU:{ordinal}": ordinal for ordinal in shown}
    for name in names:
        if name.upper().startswith("GPU") and name.upper() not in by_name:
            raise ConfigError(
                f"engine.devices names {name}, but CUDA shows {', '.join(by_name) or 'no GPU here'}; see distxcept doctor; "
                "--device and --memory plan for a card that is elsewhere"
            )
    return [by_name[name.upper()] for name in names if name.upper() in by_name]


def _engine(config: Config, world: int | None, cards: int) -> tuple[EngineName, int]:
    devices = config.engine.devices
    local = max(1, cards) if devices == "auto" else devices if isinstance(devices, int) else len(devices)
    name = config.engine.name
    if name == "auto":
        name = "horovod" if world is not None and world > 1 else "mirrored" if local > 1 else "single"
    if name == "single" and (world or 1) > 1:
        raise ConfigError(
            f"--world is {world}, but engine.name is single, which has one replica; use engine.name=auto"
        )
    replicas = world or (1 if name == "single" else local)
    return name, replicas
