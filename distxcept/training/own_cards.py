"""The cards that this process computes on, as the driver sees them now."""

from collections.abc import Sequence

import tensorflow as tf

from distxcept.memory.cuda_cards import bus_ids
from distxcept.memory.nvml import GpuState, find_cards, read_gpus


def numbers_of_cards(devices: Sequence[str]) -> list[int]:
    """The driver's numbers of TensorFlow's devices GPU:K; a rank sees its own card as GPU:0, wherever it is."""
    gpus = [device for device in devices if device.startswith("GPU")]
    if not gpus:  # the driver is left alone: a run on the CPU has no business with it
        return []
    visible = tf.config.get_visible_devices("GPU")
    ordinals = [int(visible[int(gpu.partition(":")[2])].name.rpartition(":")[2]) for gpu in gpus]
    return find_cards(bus_ids(ordinals))


def read_cards(numbers: Sequence[int]) -> list[GpuState]:
    """Empty where the driver tells nothing."""
    found = read_gpus(numbers) if numbers else []
    return found if isinstance(found, list) else []
