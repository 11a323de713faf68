"""The driver and each card, as NVML tells them."""

from distxcept.doctor.finding import Finding, Status, gib
from distxcept.memory.nvml import Driver, GpuState, NvmlUnavailable

AREA = "gpu"

# NVIDIA's cards throttle at 83 to 90 °C; at 87 the training is already slower than it could be.
HOT_CELSIUS = 87
# Below this share of its memory a card cannot hold more than a toy model.
NEARLY_FULL_FREE_FRACTION = 0.1
# Below this much, what is in use is the driver's own share.
IDLE_USED_FRACTION = 0.05


def check_driver(driver: Driver | NvmlUnavailable, card_on_pci_bus: bool) -> list[Finding]:
    if isinstance(driver, Driver):
        cuda = "an unknown CUDA" if driver.cuda_version is None else "CUDA {}.{}".format(*driver.cuda_version)
        data = {"version": driver.version, "cuda": driver.cuda_version}
        return [Finding(AREA, "ok", f"NVIDIA driver {driver.version}, up to {cuda}", data=data)]
    data = {"reason": driver.reason}
    remedies = {
        "no_driver": "load it (`modprobe nvidia`, or reboot after an update); in a container start with --gpus all",
        "version_mismatch": "reboot, or reload the driver: it was updated while the old one was running",
        "other": "run nvidia-smi to see the same error, then look at `dmesg | grep -i nvrm`",
    }
    if driver.reason != "no_library":
        return [Finding(AREA, "problem", driver.text, remedies[driver.reason], data)]
    if card_on_pci_bus:
        text = f"an NVIDIA card is in this machine, but its driver is not installed ({driver.text})"
        return [Finding(AREA, "problem", text, "install NVIDIA's driver, version 525 or newer", data)]
    remedy = "if it should have one: install its driver; in a container start with --gpus all"
    return [Finding(AREA, "warning", f"no NVIDIA GPU found ({driver.text})", remedy, data)]


def check_cards(gpus: list[GpuState]) -> list[Finding]:
    if not gpus:
        remedy = "check the power and the slot of the card, then `nvidia-smi -L`; in SLURM ask for --gpus"
        return [Finding(AREA, "problem", "the NVIDIA driver runs but shows no card", remedy)]
    return [finding for gpu in gpus for finding in _check_card(gpu)]


def _check_card(gpu: GpuState) -> list[Finding]:
    data = {"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name}
    if gpu.lost or gpu.problem is not None:
        remedy = (
            "reboot the machine, and look at `dmesg | grep -i xid`; CUDA_VISIBLE_DEVICES can leave it out"
        )
        return [Finding(AREA, "problem", f"GPU {gpu.index} does not answer: {gpu.problem}", remedy, data)]
    return [
        Finding(AREA, "ok", _describe(gpu), data={**data, **_figures(gpu)}),
        *_memory_held_by_others(gpu),
        *_health(gpu),
    ]


def _describe(gpu: GpuState) -> str:
    parts = [f"GPU {gpu.index}: {gpu.name}"]
    if gpu.memory_total_bytes is not None and gpu.memory_free_bytes is not None:
        parts.append(f"{gib(gpu.memory_free_bytes)} of {gib(gpu.memory_total_bytes)} free")
    if gpu.temperature_celsius is not None:
        parts.append(f"{gpu.temperature_celsius} °C")
    if gpu.power_watts is not None:
        parts.append(f"{gpu.power_watts:.0f} W")
    if gpu.utilisation_percent is not None:
        parts.append(f"{gpu.utilisation_percent} % busy")
    ecc = gpu.ecc_uncorrected_errors
    parts.append("no ECC" if ecc is None else f"{ecc} uncorrected ECC errors")
    return ", ".join(parts)


def _figures(gpu: GpuState) -> dict[str, object]:
    return {
        "memory_total_bytes": gpu.memory_total_bytes,
        "memory_free_bytes": gpu.memory_free_bytes,
        "temperature_celsius": gpu.temperature_celsius,
        "power_watts": gpu.power_watts,
        "utilisation_percent": gpu.utilisation_percent,
        "ecc_uncorrected_errors": gpu.ecc_uncorrected_errors,
        "compute_capability": gpu.compute_capability,
    }


def _memory_held_by_others(gpu: GpuState) -> list[Finding]:
    total, used = gpu.memory_total_bytes, gpu.memory_used_bytes
    if total is None or used is None or used < total * IDLE_USED_FRACTION:
        return []
    holders = [
        f"process {process.pid} ({process.name or 'name unknown'}) holds "
        + ("an unknown part" if process.used_bytes is None else gib(process.used_bytes))
        for process in gpu.processes
    ]
    who = (
        "; ".join(holders)
        or "NVML shows no process (one in another container, or one that left a zombie behind)"
    )
    status: Status = "problem" if total - used < total * NEARLY_FULL_FREE_FRACTION else "warning"
    return [
        Finding(
            AREA,
            status,
            f"GPU {gpu.index}: {gib(used)} of {gib(total)} are in use: {who}",
            "end that process or wait for it; or choose another card with CUDA_VISIBLE_DEVICES",
            {
                "index": gpu.index,
                "used_bytes": used,
                "processes": [{"pid": p.pid, "bytes": p.used_bytes, "name": p.name} for p in gpu.processes],
            },
        )
    ]


def _health(gpu: GpuState) -> list[Finding]:
    findings = []
    if gpu.temperature_celsius is not None and gpu.temperature_celsius >= HOT_CELSIUS:
        text = f"GPU {gpu.index} has {gpu.temperature_celsius} °C and will slow down"
        findings.append(Finding(AREA, "warning", text, "check its fans and the air around it"))
    if gpu.ecc_uncorrected_errors:
        text = f"GPU {gpu.index} had {gpu.ecc_uncorrected_errors} uncorrected memory errors: results may be wrong"
        findings.append(
            Finding(AREA, "problem", text, "reset the card (`nvidia-smi -r`) and watch it; else replace it")
        )
    return findings
