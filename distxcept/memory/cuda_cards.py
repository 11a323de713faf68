"""Which cards a process computes on, in the driver's own numbers. No TensorFlow.

TensorFlow counts the cards as CUDA does (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER), NVML all cards of the machine by
their place on the bus. CUDA tells the place of a card; so both meet there, and nothing has to be guessed.
"""

import ctypes
from collections.abc import Sequence

from distxcept.memory.nvml import GpuState, find_cards, read_gpus

LIBRARY = "libcuda.so.1"
BUS_ID_LENGTH = 32


def bus_ids(ordinals: Sequence[int]) -> list[str]:
    """Places on the PCI bus of CUDA's devices with these numbers; a device that CUDA does not know is left out."""
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError:
        return []
    if cuda.cuInit(0) != 0:
        return []
    found = []
    for ordinal in ordinals:
        text = ctypes.create_string_buffer(BUS_ID_LENGTH)
        if cuda.cuDeviceGetPCIBusId(text, BUS_ID_LENGTH, ordinal) == 0:
            found.append(text.value.decode("ascii"))
    return found


def shown_cards() -> dict[int, GpuState]:
    """The cards that CUDA shows to this process, by its numbers; empty where it or the driver tells nothing."""
    cards = read_gpus()
    if not isinstance(cards, list):
        return {}
    found = {ordinal: find_cards(bus_ids([ordinal])) for ordinal in range(len(cards))}
    shown = {ordinal: cards[numbers[0]] for ordinal, numbers in found.items() if numbers}
    return {ordinal: card for ordinal, card in shown.items() if card.problem is None}
