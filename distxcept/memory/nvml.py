"""What the NVIDIA driver says about the cards of this machine, through nvidia-ml-py. No TensorFlow.

Nothing here raises for a broken card or a missing driver: those are answers. A value that a card does not offer
(consumer cards have no ECC, a MIG slice no power) is None.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Value = TypeVar("Value")

Reason = Literal["no_library", "no_driver", "version_mismatch", "other"]

# NVML's bits for why clocks are below their maximum. That a card is idle (bit 0) is no throttling.
THROTTLING = {
    0x002: "application_clocks",
    0x004: "power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "thermal_software",
    0x040: "thermal_hardware",
    0x080: "power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}


@dataclass(frozen=True)
class NvmlUnavailable:
    """Why the driver cannot be asked."""

    reason: Reason
    text: str


@dataclass(frozen=True)
class Driver:
    version: str
    """NVIDIA's driver version, e.g. 550.54.15."""
    cuda_version: tuple[int, int] | None
    """The newest CUDA that this driver can run, e.g. (12, 4)."""


@dataclass(frozen=True)
class GpuProcess:
    pid: int
    """As the driver counts: inside a container this is the number outside of it."""
    used_bytes: int | None
    name: str | None
    """The program's file name; not its arguments, which may hold secrets."""


@dataclass(frozen=True)
class CardPlace:
    """What the driver calls a device that CUDA computes on."""

    index: int
    """Number of the card."""
    mig: int | None = None
    """Number of the slice of a card that MIG has divided."""


@dataclass(frozen=True, kw_only=True)
class GpuState:
    index: int
    driver_version: str
    mig: int | None = None
    """A slice of the card; memory, name and processes are those of the slice."""
    lost: bool = False
    """The card fell off the bus or needs a reset; then nothing else is known."""
    problem: str | None = None
    """Why the card could not be read, in NVML's words."""
    uuid: str | None = None
    name: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    processes: tuple[GpuProcess, ...] = ()
    temperature_celsius: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    utilisation_percent: int | None = None
    """Share of the last moments in which a kernel ran; not how much of the card it filled."""
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttling: tuple[str, ...] = ()
    """Why clocks are below their maximum: values of THROTTLING."""
    ecc_uncorrected_errors: int | None = None
    """Since the driver was loaded."""

    def __str__(self) -> str:
        return f"GPU {self.index}" if self.mig is None else f"GPU {self.index} MIG {self.mig}"


def read_driver() -> Driver | NvmlUnavailable:
    nvml = _start()
    if isinstance(nvml, NvmlUnavailable):
        return nvml
    cuda = _optional(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    return Driver(
        version=_optional(nvml, nvml.nvmlSystemGetDriverVersion) or "unknown",
        cuda_version=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
    )


def read_gpus(indexes: Sequence[int] | None = None) -> list[GpuState] | NvmlUnavailable:
    """The state of these cards now, or of all, in the driver's order (PCI bus order, not CUDA_VISIBLE_DEVICES)."""
    nvml = _start()
    if isinstance(nvml, NvmlUnavailable):
        return nvml
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return NvmlUnavailable("other", f"the driver cannot count its cards: {error}")
    return [_read_gpu(nvml, CardPlace(index)) for index in (range(count) if indexes is None else indexes)]


def count_gpus() -> int:
    """Cards of this machine; 0 where the driver tells nothing."""
    found = read_gpus()
    return len(found) if isinstance(found, list) else 0


def missing_cards() -> list[str]:
    """A sentence for each card of this machine that the driver has lost: a run goes on without it, and slower."""
    found = read_gpus()
    lost = [card for card in found if card.lost] if isinstance(found, list) else []
    return [
        f"{card} is lost ({card.problem}); the run does without it: reset it (nvidia-smi -r)" for card in lost
    ]


def read_cards(places: Sequence[CardPlace]) -> list[GpuState]:
    """The devices at these places, as the driver sees them now; empty where it tells nothing."""
    nvml = _start() if places else None
    if nvml is None or isinstance(nvml, NvmlUnavailable):
        return []
    return [_read_gpu(nvml, place) for place in places]


def is_lost(bus_id: str) -> bool:
    """Whether the driver says that the card at this place of the PCI bus has failed."""
    nvml = _start()
    if isinstance(nvml, NvmlUnavailable):
        return False
    try:
        nvml.nvmlDeviceGetHandleByPciBusId(bus_id)
    except nvml.NVMLError as error:
        return _means_lost(nvml, error)
    return False


def find_card(bus_id: str, uuid: str | None) -> CardPlace | None:
    """The driver's name of the device that CUDA shows with this PCI bus id and UUID.

    All MIG slices of a card have the card's bus id, and a UUID each. None where the driver does not know the device.
    """
    nvml = _start()
    if isinstance(nvml, NvmlUnavailable):
        return None
    card = _optional(nvml, nvml.nvmlDeviceGetHandleByPciBusId, bus_id)
    index = None if card is None else _optional(nvml, nvml.nvmlDeviceGetIndex, card)
    if index is None:
        return None
    mode = _optional(nvml, nvml.nvmlDeviceGetMigMode, card)
    if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return CardPlace(index)
    for number in range(_optional(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, card) or 0):
        mig = _optional(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, card, number)
        if mig is not None and _optional(nvml, nvml.nvmlDeviceGetUUID, mig) == f"MIG-{uuid}":
            return CardPlace(index, number)
    return None


def _start() -> Any:
    """The pynvml module, ready; or NvmlUnavailable.

    Never shut down again: the first start costs up to seconds on a big machine, later ones only count.
    """
    try:
        import pynvml
    except ImportError:
        return NvmlUnavailable("no_library", "the Python package nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        reasons: dict[int, tuple[Reason, str]] = {
            pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: ("no_library", "libnvidia-ml.so.1 not found"),
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED: ("no_driver", "the NVIDIA kernel driver is not loaded"),
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
                "version_mismatch",
                "the loaded NVIDIA kernel driver and its libraries have different versions",
            ),
        }
        reason, text = reasons.get(error.value, ("other", f"NVML does not start: {error}"))
        return NvmlUnavailable(reason, text)
    return pynvml


def _read_gpu(nvml: Any, place: CardPlace) -> GpuState:
    driver_version = _optional(nvml, nvml.nvmlSystemGetDriverVersion) or "unknown"
    known: dict[str, Any] = dict(index=place.index, mig=place.mig, driver_version=driver_version)
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(place.index)
        if place.mig is not None:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place.mig)
        memory = _memory(nvml, handle)
    except nvml.NVMLError as error:
        return GpuState(**known, lost=_means_lost(nvml, error), problem=str(error))

    def read(query: Callable[..., Value], *arguments: Any) -> Value | None:
        return _optional(nvml, query, handle, *arguments)

    power_milliwatts = read(nvml.nvmlDeviceGetPowerUsage)
    limit_milliwatts = read(nvml.nvmlDeviceGetEnforcedPowerLimit)
    utilisation = read(nvml.nvmlDeviceGetUtilizationRates)
    return GpuState(
        **known,
        uuid=read(nvml.nvmlDeviceGetUUID),
        name=read(nvml.nvmlDeviceGetName),
        compute_capability=read(nvml.nvmlDeviceGetCudaComputeCapability),
        memory_total_bytes=memory and memory.total,
        memory_used_bytes=memory and memory.used,
        memory_free_bytes=memory and memory.free,
        processes=_read_processes(nvml, handle),
        temperature_celsius=read(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        power_watts=None if power_milliwatts is None else power_milliwatts / 1000,
        power_limit_watts=None if limit_milliwatts is None else limit_milliwatts / 1000,
        utilisation_percent=None if utilisation is None else utilisation.gpu,
        sm_clock_mhz=read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        sm_clock_max_mhz=read(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
        throttling=_read_throttling(nvml, handle),
        ecc_uncorrected_errors=read(
            nvml.nvmlDeviceGetTotalEccErrors, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        ),
    )


def _means_lost(nvml: Any, error: Any) -> bool:
    return error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED)


def _memory(nvml: Any, handle: Any) -> Any:
    """None where card and host share their memory, and for all of a card that MIG has divided; else it is not usable."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission):
        return None


def _read_throttling(nvml: Any, handle: Any) -> tuple[str, ...]:
    """Drivers before 535 know the question by another name only; newer ones will forget that name."""
    bits = _optional(nvml, nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if bits is None:
        bits = _optional(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return tuple(name for bit, name in THROTTLING.items() if bits and bits & bit)


def _read_processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    """Compute and graphics processes; one that does both is listed by NVML in both, here once."""
    found: dict[int, GpuProcess] = {}
    for query in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
        for process in _optional(nvml, query, handle) or []:
            if process.pid not in found:
                command = _optional(nvml, nvml.nvmlSystemGetProcessName, process.pid)
                name = command.split()[0].rsplit("/", 1)[-1] if command and command.split() else None
                found[process.pid] = GpuProcess(process.pid, process.usedGpuMemory, name)
    return tuple(found.values())


def _optional(nvml: Any, query: Callable[..., Value], *arguments: Any) -> Value | None:
    try:
        return query(*arguments)
    except nvml.NVMLError:
        return None
