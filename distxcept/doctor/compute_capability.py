"""Does TensorFlow's build have kernels for a card?

A build lists `sm_80` where it has machine code, which also runs on later cards of the same generation (8.x), and
`compute_90` where it also has PTX, which the driver compiles for the card. Not every kernel of a `compute_90` build has
machine code too: in the wheel of TensorFlow 2.21 four of five have not, so an H100 needs a driver that can compile them.
PTX is meant to run on later generations as well, but with TensorFlow that fails or takes half an hour
(tensorflow#89272, #101746, #111958), so it does not count here.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from distxcept.doctor.finding import Finding
from distxcept.memory.nvml import Driver, GpuState

AREA = "gpu"
REPORTS = "tensorflow#89272"

Capability = tuple[int, int]
Support = Literal["machine code", "ptx", "too old", "too new", "unknown"]


def support(build: Mapping[str, Any], card: Capability | None) -> Support:
    """How the build's kernels run on a card with this compute capability."""
    built = _built(build)
    if card is None or not built:
        return "unknown"
    for kind, (major, minor) in sorted(built, reverse=True):
        if major == card[0] and minor <= card[1]:
            return "machine code" if kind == "sm" else "ptx"
    return "too new" if card > max(capability for _, capability in built) else "too old"


def check_compute_capability(
    build: Mapping[str, Any], gpus: Sequence[GpuState], driver: Driver | None
) -> list[Finding]:
    return [finding for gpu in gpus for finding in _check_card(build, gpu, driver)]


def unusable(build: Mapping[str, Any], tensorflow_gpus: Sequence[Mapping[str, str]]) -> int:
    """How many of the GPUs that TensorFlow lists it has no kernels for."""
    found = [re.findall(r"\d+", gpu.get("compute_capability", "")) for gpu in tensorflow_gpus]
    cards = [(int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None for numbers in found]
    return sum(support(build, card) in ("too old", "too new") for card in cards)


def _check_card(build: Mapping[str, Any], gpu: GpuState, driver: Driver | None) -> list[Finding]:
    how = support(build, gpu.compute_capability)
    if how in ("machine code", "unknown"):
        return []
    capabilities = sorted(capability for _, capability in _built(build))
    card, oldest, newest = (
        _shown(one) for one in (gpu.compute_capability, capabilities[0], capabilities[-1])
    )
    data = {"index": gpu.index, "compute_capability": gpu.compute_capability, "built_for": capabilities}
    text = f"GPU {gpu.index} ({gpu.name}) has compute capability {card}"
    if how == "too old":
        text += f"; TensorFlow needs {oldest} or newer"
        return [Finding(AREA, "problem", text, "use a newer card, or leave it out", data)]
    if how == "too new":
        text += (
            f", but this TensorFlow was built for {oldest} to {newest}: others report kernels that fail "
            f"(CUDA_ERROR_INVALID_PTX) or compile for half an hour ({REPORTS})"
        )
        remedy = (
            f"install a TensorFlow 2.21 built for {card}, or leave the card out with CUDA_VISIBLE_DEVICES"
        )
        return [Finding(AREA, "problem", text, remedy, data)]
    return [_compiled_by_driver(build, text, driver, data)]


def _compiled_by_driver(
    build: Mapping[str, Any], text: str, driver: Driver | None, data: Mapping[str, Any]
) -> Finding:
    """PTX needs a driver at least as new as the CUDA that wrote it."""
    cuda = re.match(r"(\d+)\.(\d+)", str(build.get("cuda_version", "")))
    wanted = (int(cuda[1]), int(cuda[2])) if cuda else None
    needed = f"a driver for CUDA {_shown(wanted)} or newer" if wanted else "a recent driver"
    has = driver.cuda_version if driver else None
    if wanted and has and has < wanted:
        text += f": its driver has to compile TensorFlow's kernels (PTX), which needs {needed}"
        return Finding(AREA, "problem", text, "update the NVIDIA driver", data)
    text += f": its driver compiles TensorFlow's kernels (PTX) at the first start; that needs {needed}"
    return Finding(AREA, "ok", text, data=data)


def _built(build: Mapping[str, Any]) -> list[tuple[str, Capability]]:
    """`sm_80` as ("sm", (8, 0)); the last digit is the minor version."""
    found = []
    for one in build.get("cuda_compute_capabilities", []):
        match = re.fullmatch(r"(?:(sm|compute)_)?(\d+)(\d)[a-z]?", str(one))
        if match:
            found.append((match[1] or "sm", (int(match[2]), int(match[3]))))
    return found


def _shown(capability: Capability | None) -> str:
    return "unknown" if capability is None else "{}.{}".format(*capability)
