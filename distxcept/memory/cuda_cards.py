"""Which cards a process computes on, in the driver's own numbers. No TensorFlow.

TensorFlow counts the cards as CUDA does (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER), NVML all cards of the machine by
their place on the bus. CUDA tells the place of a card; so both meet there, and nothing has to be guessed.
"""

import ctypes
from collections.abc import Sequence

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
