"""Which devices this process uses, fixed before TensorFlow touches any of them."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

import tensorflow as tf

from distxcept.cluster import Placement
from distxcept.cluster.affinity import take_own_cpus
from distxcept.cluster.compute import GPU_GROWTH
from distxcept.config.schema import EngineSection
from distxcept.errors import ConfigError, on_all_ranks

MOST_LOGICAL = 1024

CardLimit = Callable[[Sequence[int]], int | None]
"""From CUDA's numbers of the cards that a process takes to the bytes that TensorFlow may take of each; None: as it needs."""


def no_limit(cards: Sequence[int]) -> None:
    """TensorFlow takes memory as it needs it, up to what it finds free when it starts."""


def count_gpus() -> int:
    return len(tf.config.list_physical_devices("GPU"))


def prepare_devices(
    devices: str | int | Sequence[str], threads: int | None, *, limit: CardLimit = no_limit
) -> list[str]:
    """Devices of a process that has the machine for itself: GPUs if there are any, else logical CPUs."""
    try:
        return _prepare(devices, threads, limit)
    except RuntimeError as error:
        # In a notebook, where something else has used TensorFlow before. A process fixes its devices once.
        raise ConfigError(
            f"TensorFlow has already started in this process with other devices or threads ({error}); start a new "
            "process (in a notebook: restart the kernel), and make the trainer before anything else uses TensorFlow "
            "(for model= give the function that builds the Keras model, not the model)"
        ) from error


def _prepare(devices: str | int | Sequence[str], threads: int | None, limit: CardLimit) -> list[str]:
    _set_threads(threads)
    gpus = tf.config.list_physical_devices("GPU")
    if not isinstance(devices, (str, int)):
        return _take_gpus(gpus, _named(list(devices), len(gpus)), limit)
    if devices == "auto":
        devices = max(1, len(gpus))
    assert isinstance(devices, int)
    if gpus:
        if devices > len(gpus):
            raise ConfigError(
                f"engine.devices is {devices}, but TensorFlow sees {len(gpus)} GPUs; lower it, or see distxcept doctor"
            )
        return _take_gpus(gpus, [f"GPU:{k}" for k in range(devices)], limit)
    _split_cpu(devices)
    return [f"CPU:{k}" for k in range(devices)]


def prepare_rank_device(
    config: EngineSection, placement: Placement, local_rank: int, *, limit: CardLimit = no_limit
) -> str:
    """The one device of a rank: a GPU, else the CPU with its part of the cores.

    A launcher may show each rank only its own GPU, all of them, or those of its part of the host. In every case the local
    rank, counted round, picks another card for each rank, if there is one. What they picked the ranks compare later by
    PCI bus id (training/own_cards.py).
    """
    gpus = tf.config.list_physical_devices("GPU")
    chosen = [f"GPU:{k}" for k in range(len(gpus))]
    if isinstance(config.devices, tuple):
        try:
            named = _check_names(list(config.devices), len(gpus))
        except ConfigError as error:
            raise on_all_ranks(error) from None
        chosen = [name for name in named if name.startswith("GPU")]
    threads = config.threads
    if not chosen:
        threads = threads or take_own_cpus(placement)
    _set_threads(threads)
    name = chosen[local_rank % len(chosen)] if chosen else "CPU:0"
    return _take_gpus(gpus, [name], limit)[0]


def _named(names: list[str], gpus: int) -> list[str]:
    """The names in capitals; the CPU is split into as many as they need."""
    upper = _check_names(names, gpus)
    _split_cpu(1 + max((int(name[4:]) for name in upper if name.startswith("CPU")), default=0))
    return upper


def _check_names(names: list[str], gpus: int) -> list[str]:
    """Names such as GPU:1 or CPU:0, each once and of one kind, in capitals."""
    for name in names:
        kind, _, number = name.upper().partition(":")
        if kind not in ("CPU", "GPU") or not (number.isascii() and number.isdecimal()):
            raise ConfigError(f"engine.devices names {name!r}, which is no device; write GPU:0 or CPU:0")
        if kind == "GPU" and int(number) >= gpus:
            raise ConfigError(
                f"engine.devices names {name}, but TensorFlow sees {gpus} GPUs; see distxcept doctor"
            )
    upper = [name.upper() for name in names]
    if len(set(upper)) != len(upper):
        raise ConfigError(f"engine.devices names a device twice: {', '.join(names)}")
    if len({name[:3] for name in upper}) > 1:
        raise ConfigError(f"engine.devices mixes GPUs and CPUs: {', '.join(names)}; name one kind only")
    return upper


def _split_cpu(number: int) -> None:
    if number > MOST_LOGICAL:
        raise ConfigError(
            f"engine.devices asks for {number} logical CPUs; there can be {MOST_LOGICAL} at most"
        )
    if number > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * number)


def _take_gpus(gpus: Sequence, names: list[str], limit: CardLimit) -> list[str]:
    """The names from here on: TensorFlow counts what it may see, from 0, in the order of the machine.

    The other cards are hidden from it: it would start on each that it sees, and take some of its memory.
    """
    if not gpus:
        return names
    numbers = sorted(int(name[4:]) for name in names if name.startswith("GPU"))
    taken = [gpus[number] for number in numbers]
    tf.config.set_visible_devices(taken, "GPU")
    if taken:
        _limit_gpus(taken, limit(numbers))
    return [f"GPU:{numbers.index(int(name[4:]))}" if name.startswith("GPU") else name for name in names]


def _limit_gpus(gpus: Sequence, limit_bytes: int | None) -> None:
    """Before TensorFlow touches them. Without a limit it keeps 1,050 to 1,800 MiB of a card free, by its kind.

    With a limit it would take all of it at once, and leave nothing for the trials of memory plans. Python cannot give a
    device a limit and growth, so a variable asks for growth, here too for programs that did not prepare the environment.
    """
    os.environ.setdefault(GPU_GROWTH, "true")
    for gpu in gpus:
        if limit_bytes is None:
            tf.config.experimental.set_memory_growth(gpu, True)
        else:
            limited = tf.config.LogicalDeviceConfiguration(memory_limit=limit_bytes // 2**20)
            tf.config.set_logical_device_configuration(gpu, [limited])


def one_thread_each() -> None:
    """Operations have one thread from now on, for parts that have a core each.

    Not where TensorFlow has started already, with more of them: then it is somewhat slower.
    """
    with suppress(RuntimeError):
        _set_threads(1)


def has_one_thread_each() -> bool:
    return tf.config.threading.get_intra_op_parallelism_threads() == 1


def _set_threads(threads: int | None) -> None:
    if threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
