"""Why is my model not training on the GPU: TensorFlow's build, the driver, the visible devices, the libraries."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from distxcept.cluster.compute import INSTALL_CUDA
from distxcept.doctor.compute_capability import unusable
from distxcept.doctor.finding import Finding, Status
from distxcept.memory.nvml import Driver, GpuState, NvmlUnavailable

AREA = "gpu"

# NVIDIA's table of minor-version compatibility: any CUDA of a major version runs on this driver or a newer one.
MINIMUM_DRIVER = {11: 450, 12: 525, 13: 580}

NCCL_LIBRARY = "libnccl.so.2"

# File names by CUDA's major version; cuFFT, cuRAND and cuSOLVER count their own.
CUDA_LIBRARIES = {
    12: (
        "libcudart.so.12",
        "libcublas.so.12",
        "libcublasLt.so.12",
        "libcufft.so.11",
        "libcusolver.so.11",
        "libcusparse.so.12",
    )
}


def visible_cards(environ: Mapping[str, str], gpus: Sequence[GpuState]) -> list[int]:
    """CUDA reads the list up to the first entry that does not exist, and ignores the rest."""
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(range(len(gpus)))
    visible: list[int] = []
    for entry in (part.strip() for part in text.split(",")):
        index = _card_index(entry, gpus)
        if index is None:
            break
        visible.append(index)
    return visible


def check_visible_devices(environ: Mapping[str, str], gpus: Sequence[GpuState]) -> list[Finding]:
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None or not gpus:
        return []
    shown = f"CUDA_VISIBLE_DEVICES={text!r}"
    remedy = f"unset CUDA_VISIBLE_DEVICES, or name cards from 0 to {len(gpus) - 1}"
    visible = visible_cards(environ, gpus)
    data = {"value": text, "visible": visible}
    if not visible:
        why = (
            "hides every card"
            if text.strip() in ("", "-1")
            else "names no card that exists, so it hides every card"
        )
        return [Finding(AREA, "problem", f"{shown} {why}", remedy, data)]
    if len(visible) < len(text.split(",")):
        kept = ", ".join(str(index) for index in visible)
        text = f"{shown} names a card that does not exist; CUDA stops reading there and shows only GPU {kept}"
        return [Finding(AREA, "warning", text, remedy, data)]
    return [Finding(AREA, "ok", f"{shown} shows {len(visible)} of {len(gpus)} cards", data=data)]


def _card_index(entry: str, gpus: Sequence[GpuState]) -> int | None:
    if re.fullmatch(r"\d+", entry):
        return int(entry) if int(entry) < len(gpus) else None
    if entry.startswith("MIG-"):
        return 0  # a slice of some card; NVML's list of cards cannot tell which
    if entry.startswith("GPU-"):
        return next((gpu.index for gpu in gpus if gpu.uuid is not None and gpu.uuid.startswith(entry)), None)
    return None


def check_driver_for_build(build: Mapping[str, Any], driver: Driver) -> list[Finding]:
    """Is the driver new enough for the CUDA that TensorFlow was built with?"""
    built = re.match(r"(\d+)\.(\d+)", str(build.get("cuda_version", "")))
    if built is None or driver.cuda_version is None:
        return []
    needed = int(built[1]), int(built[2])
    data = {"driver": driver.version, "driver_cuda": driver.cuda_version, "built_with_cuda": needed}
    have = "{}.{}".format(*driver.cuda_version)
    if driver.cuda_version[0] < needed[0]:
        return [
            Finding(
                AREA,
                "problem",
                f"driver {driver.version} is too old: it runs CUDA up to {have}, TensorFlow was built with "
                f"CUDA {needed[0]}.{needed[1]}",
                f"install NVIDIA driver {MINIMUM_DRIVER.get(needed[0], 'of that CUDA')} or newer",
                data,
            )
        ]
    if driver.cuda_version < needed:
        text = (
            f"driver {driver.version} is older than TensorFlow's CUDA {needed[0]}.{needed[1]} (it knows {have}); "
            "it runs through minor-version compatibility, without just-in-time compilation for newer cards"
        )
        return [Finding(AREA, "warning", text, "update the NVIDIA driver", data)]
    return []


def check_cuda_libraries(
    build: Mapping[str, Any],
    gpus: Sequence[GpuState],
    available: Mapping[str, str],
    versions: Mapping[str, str],
) -> list[Finding]:
    """`available`: the folder of each library file that was found; `versions`: of pip's packages with them."""
    needed = needed_libraries(build)
    if not gpus or not needed:
        return []
    missing = [name for name in needed if name not in available]
    data = {"missing": missing, "found": {name: available[name] for name in needed if name in available}}
    if missing:
        text = f"TensorFlow needs {', '.join(missing)}, which cannot be found"
        return [Finding(AREA, "problem", text, INSTALL_CUDA, data)]
    found = ", ".join(f"{name} {version}" for name, version in versions.items()) or "not from pip"
    text = f"CUDA {build.get('cuda_version')} and cuDNN {build.get('cudnn_version')} wanted, found: {found}"
    return [Finding(AREA, "ok", text, data=data)]


def check_nccl(gpus: Sequence[GpuState], available: Mapping[str, str]) -> list[Finding]:
    """Several cards exchange gradients through NCCL; one card does not need it."""
    if len(gpus) < 2:
        return []
    if NCCL_LIBRARY not in available:
        text = f"{NCCL_LIBRARY} cannot be found: several GPUs cannot exchange gradients directly"
        return [Finding(AREA, "warning", text, INSTALL_CUDA)]
    return [Finding(AREA, "ok", "NCCL is there", data={"folder": available[NCCL_LIBRARY]})]


def needed_libraries(build: Mapping[str, Any]) -> list[str]:
    match = re.match(r"\d+", str(build.get("cuda_version", "")))
    if not build.get("is_cuda_build") or match is None:
        return []
    libraries = list(CUDA_LIBRARIES.get(int(match[0]), ()))
    if build.get("cudnn_version"):
        libraries.append(f"libcudnn.so.{str(build['cudnn_version']).split('.')[0]}")
    return libraries


def check_training_device(
    build: Mapping[str, Any],
    tensorflow_gpus: Sequence[Mapping[str, str]] | None,
    gpus: list[GpuState] | NvmlUnavailable,
    possible_causes: Sequence[Finding],
) -> list[Finding]:
    """The answer in one line: where training runs, and if not on a GPU, why. The first problem is the cause."""
    cards = gpus if isinstance(gpus, list) else []
    if tensorflow_gpus:
        names = ", ".join(str(gpu.get("device_name") or gpu.get("name")) for gpu in tensorflow_gpus)
        data = {"device": "gpu", "count": len(tensorflow_gpus)}
        lacking = unusable(build, tensorflow_gpus)
        if lacking:
            text = f"training on {lacking} of TensorFlow's {len(tensorflow_gpus)} GPU is expected to fail: {names}"
            wayout = "see the compute capability of the cards above; engine.devices=[CPU:0] trains on the CPU"
            return [Finding(AREA, "problem", text, wayout, data)]
        return [Finding(AREA, "ok", f"training runs on {len(tensorflow_gpus)} GPU: {names}", data=data)]
    if tensorflow_gpus is None:
        return []
    data = {"device": "cpu"}
    if not build.get("is_cuda_build"):
        text = "training runs on the CPU: this TensorFlow was built without CUDA"
        status: Status = "problem" if cards else "warning"
        remedy = "pip uninstall tensorflow-cpu; " + INSTALL_CUDA if cards else None
        return [Finding(AREA, status, text, remedy, data)]
    cause = next((one for one in possible_causes if one.status == "problem"), None)
    if cause is not None:
        text = f"training runs on the CPU, because: {cause.text}"
        return [Finding(AREA, "problem", text, cause.remedy, data)]
    if cards:
        text = f"training runs on the CPU: the driver shows {len(cards)} cards, but TensorFlow sees none"
        return [Finding(AREA, "problem", text, INSTALL_CUDA, data)]
    return [Finding(AREA, "ok", "training runs on the CPU: there is no GPU here", data=data)]
