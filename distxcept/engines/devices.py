"""Which devices this process uses, fixed before TensorFlow touches any of them."""

from collections.abc import Sequence
from contextlib import suppress

import tensorflow as tf

from distxcept.cluster import Placement
from distxcept.cluster.affinity import take_own_cpus
from distxcept.config.schema import EngineSection
from distxcept.errors import ConfigError

MOST_LOGICAL = 1024


def count_gpus() -> int:
    return len(tf.config.list_physical_devices("GPU"))


def prepare_devices(
    devices: str | int | Sequence[str], threads: int | None, *, limit_bytes: int | None = None
) -> list[str]:
    """Devices of a process that has the machine for itself: GPUs if there are any, else logical CPUs.

    `limit_bytes` is what TensorFlow may take of each GPU.
    """
    try:
        return _prepare(devices, threads, limit_bytes)
    except RuntimeError as error:
        # In a notebook, where something else has used TensorFlow before. A process fixes its devices once.
        raise ConfigError(
            f"TensorFlow has already started in this process with other devices or threads ({error}); start a new "
            "process (in a notebook: restart the kernel), and make the trainer before anything else uses TensorFlow "
            "(for model= give the function that builds the Keras model, not the model)"
        ) from error


def _prepare(devices: str | int | Sequence[str], threads: int | None, limit_bytes: int | None) -> list[str]:
    _set_threads(threads)
    gpus = tf.config.list_physical_devices("GPU")
    if not isinstance(devices, (str, int)):
        return _take_gpus(gpus, _named(list(devices), len(gpus)), limit_bytes)
    if devices == "auto":
        devices = max(1, len(gpus))
    assert isinstance(devices, int)
    if gpus:
        if devices > len(gpus):
            raise ConfigError(
                f"engine.devices is {devices}, but TensorFlow sees {len(gpus)} GPUs; see distxcept doctor"
            )
        return _take_gpus(gpus, [f"GPU:{k}" for k in range(devices)], limit_bytes)
    _split_cpu(devices)
    return [f"CPU:{k}" for k in range(devices)]


def prepare_rank_device(
    config: EngineSection, placement: Placement, local_rank: int, *, limit_bytes: int | None = None
) -> str:
    """The one device of a rank: the GPU of its local rank, else the CPU with its part of the cores."""
    gpus = tf.config.list_physical_devices("GPU")
    threads = config.threads or take_own_cpus(placement)
    if not gpus:
        _set_threads(threads)
        return "CPU:0"
    _set_threads(config.threads)
    # A launcher may show each rank only its own GPU, or all of them to every rank.
    own = placement.own_gpu or placement.local_size == 1
    number = 0 if len(gpus) == 1 and own else local_rank
    if number >= len(gpus):
        raise ConfigError(
            f"local rank {local_rank} has no GPU of its own: this host has {placement.local_size} ranks and "
            f"{len(gpus)} GPUs; launch at most one rank for each GPU"
        )
    return _take_gpus(gpus, [f"GPU:{number}"], limit_bytes)[0]


def _named(names: list[str], gpus: int) -> list[str]:
    """Names such as GPU:1 or CPU:0, each once."""
    for name in names:
        kind, _, number = name.upper().partition(":")
        if kind not in ("CPU", "GPU") or not (number.isascii() and number.isdecimal()):
            raise ConfigError(f"engine.devices names {name!r}; a device is written GPU:0 or CPU:0")
        if kind == "GPU" and int(number) >= gpus:
            raise ConfigError(
                f"engine.devices names {name}, but TensorFlow sees {gpus} GPUs; see distxcept doctor"
            )
    upper = [name.upper() for name in names]
    if len(set(upper)) != len(upper):
        raise ConfigError(f"engine.devices names a device twice: {', '.join(names)}")
    _split_cpu(1 + max((int(name[4:]) for name in upper if name.startswith("CPU")), default=0))
    return upper


def _split_cpu(number: int) -> None:
    if number > MOST_LOGICAL:
        raise ConfigError(
            f"engine.devices asks for {number} logical CPUs; there can be {MOST_LOGICAL} at most"
        )
    if number > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * number)


def _take_gpus(gpus: Sequence, names: list[str], limit_bytes: int | None) -> list[str]:
    """The names from here on: TensorFlow counts what it may see, from 0, in the order of the machine.

    The other cards are hidden from it: it would start on each that it sees, and take some of its memory.
    """
    if not gpus:
        return names
    numbers = sorted(int(name[4:]) for name in names if name.startswith("GPU"))
    taken = [gpus[number] for number in numbers]
    tf.config.set_visible_devices(taken, "GPU")
    _share_gpus(taken, limit_bytes)
    return [f"GPU:{numbers.index(int(name[4:]))}" if name.startswith("GPU") else name for name in names]


def _share_gpus(gpus: Sequence, limit_bytes: int | None) -> None:
    """Takes memory as it is needed, so that a shared card is not swallowed whole; or at most what the limit says."""
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
