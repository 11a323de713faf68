"""The devices that CUDA shows to this process, as the driver knows them. No TensorFlow.

TensorFlow numbers them as CUDA does (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER); NVML numbers all cards of the machine by
their place on the PCI bus. The bus id and the UUID, which CUDA tells of each of its devices, connect the two.

    python -m distxcept.memory.cuda_cards NUMBER      free and total bytes of a device, as one line of JSON
"""

import ctypes
import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from distxcept.memory.nvml import CardPlace, GpuState, find_card, is_lost, read_cards

LIBRARY = "libcuda.so.1"
BUS_ID_LENGTH = 32
CHILD_SECONDS = 60.0


@dataclass(frozen=True)
class CudaDevice:
    bus_id: str
    """Of the card, such as 0000:65:00.0."""
    uuid: str | None
    """Of the card, or of the MIG slice; None where the driver is too old to tell."""

    @property
    def place(self) -> CardPlace | None:
        return find_card(self.bus_id, self.uuid)


def cuda_devices(numbers: Sequence[int] | None = None) -> dict[int, CudaDevice]:
    """By CUDA's numbers: these devices, or all; one that CUDA does not know is left out."""
    cuda = _start()
    if cuda is None:
        return {}
    if numbers is None:
        count = ctypes.c_int()
        numbers = range(count.value if cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0)
    found = {number: _describe(cuda, number) for number in numbers}
    return {number: device for number, device in found.items() if device is not None}


def places_of(numbers: Sequence[int]) -> list[CardPlace]:
    """The driver's names of CUDA's devices with these numbers; one that it does not know is left out."""
    places = [device.place for device in cuda_devices(numbers).values()] if numbers else []
    return [place for place in places if place is not None]


def read_devices(numbers: Sequence[int] | None = None) -> dict[int, GpuState]:
    """By CUDA's numbers: what the driver tells of these devices, or of all, before they are used.

    Where NVML does not tell the memory (no NVML in a container, a card that shares the memory of its host, a MIG slice of
    an old driver), CUDA is asked for it.
    """
    found = {}
    for number, device in cuda_devices(numbers).items():
        place = device.place
        state = read_cards([place])[0] if place else _unknown(number, device)
        if state.problem is None and state.memory_free_bytes is None and (memory := ask_memory(number)):
            free, total = memory
            used = total - free
            state = replace(state, memory_free_bytes=free, memory_total_bytes=total, memory_used_bytes=used)
        found[number] = state
    return found


def shown_cards() -> dict[int, GpuState]:
    """By CUDA's numbers: the devices that it shows to this process and that can be used."""
    return {number: state for number, state in read_devices().items() if state.problem is None}


def _unknown(number: int, device: CudaDevice) -> GpuState:
    """A device that NVML does not tell of, by CUDA's number."""
    lost = is_lost(device.bus_id)
    problem = f"the card at {device.bus_id} is lost" if lost else None
    return GpuState(index=number, driver_version="unknown", uuid=device.uuid, lost=lost, problem=problem)


def ask_memory(number: int) -> tuple[int, int] | None:
    """Free and total bytes of a device by cuMemGetInfo; None where CUDA does not tell.

    The question needs a CUDA context, which holds some hundred MiB as long as its process lives. So a child asks, and what
    is free counts without the context of the child.
    """
    command = [sys.executable, "-m", "distxcept.memory.cuda_cards", str(number)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CHILD_SECONDS
        )
        free, total = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError):
        return None
    return int(free), int(total)


def memory_of(number: int) -> tuple[int, int] | None:
    """The question itself, in the child."""
    cuda = _start()
    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if cuda is None or cuda.cuDeviceGet(ctypes.byref(device), number):
        return None
    if cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) or cuda.cuCtxSetCurrent(context):
        return None
    if cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)):
        return None
    return free.value, total.value


def _start() -> Any:
    """The library, ready; None where there is none, or no device."""
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    return cuda if cuda.cuInit(0) == 0 else None


def _describe(cuda: Any, number: int) -> CudaDevice | None:
    device, bus_id, raw = ctypes.c_int(), ctypes.create_string_buffer(BUS_ID_LENGTH), (ctypes.c_ubyte * 16)()
    if cuda.cuDeviceGet(ctypes.byref(device), number):
        return None
    if cuda.cuDeviceGetPCIBusId(bus_id, BUS_ID_LENGTH, device):
        return None
    told = hasattr(cuda, "cuDeviceGetUuid_v2") and cuda.cuDeviceGetUuid_v2(raw, device) == 0
    return CudaDevice(bus_id.value.decode("ascii"), str(uuid.UUID(bytes=bytes(raw))) if told else None)


if __name__ == "__main__":
    print(json.dumps(memory_of(int(sys.argv[1]))))
