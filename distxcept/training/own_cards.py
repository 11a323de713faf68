"""The cards that this process computes on, as the driver and CUDA count them, and the processes of its own job."""

from collections.abc import Sequence

import psutil
import tensorflow as tf

from distxcept.engines import Engine
from distxcept.memory.cuda_cards import bus_ids
from distxcept.memory.nvml import find_cards


def numbers_of_cards(devices: Sequence[str]) -> list[int]:
    """The driver's numbers of TensorFlow's devices GPU:K; a rank sees its own card as GPU:0, wherever it is."""
    ordinals = cuda_ordinals(devices)
    # Without a GPU the driver is left alone: a run on the CPU has no business with it.
    return find_cards(bus_ids(ordinals)) if ordinals else []


def cuda_ordinals(devices: Sequence[str]) -> list[int]:
    """CUDA's numbers of TensorFlow's devices GPU:K: those of a process that has hidden none of its cards."""
    gpus = [device for device in devices if device.startswith("GPU")]
    visible = tf.config.get_visible_devices("GPU") if gpus else []
    return [int(visible[int(gpu.partition(":")[2])].name.rpartition(":")[2]) for gpu in gpus]


def device_for_child(device: str) -> str:
    """The name of this process's device in a child, which sees all cards that CUDA shows to this one."""
    ordinals = cuda_ordinals([device])
    return f"GPU:{ordinals[0]}" if ordinals else device


def pids_of_job(engine: Engine) -> set[int]:
    """This process and the ranks beside it: an MPI library may hold a little of its neighbours' cards."""
    own = psutil.Process()
    if engine.local_ranks == 1:
        return {own.pid}
    try:
        parent = own.parent()
        return {own.pid} | {child.pid for child in (parent.children() if parent else [])}
    except psutil.Error:  # a host may hide the processes of others
        return {own.pid}
