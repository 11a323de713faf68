"""The cards that this process computes on, as the driver sees them now."""

from collections.abc import Sequence

import tensorflow as tf

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
