"""Section links: how fast a reduction crosses the devices, and over what."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from distxcept.memory.links import link_by_measurement
from distxcept.prove import quiet
from distxcept.prove.context import Context, answers
from distxcept.prove.rows import Row, failed, measured, skipped

SECTION = "links"
SECONDS = 120.0
P2P_READ = 0
"""NVML_P2P_CAPS_INDEX_READ, which nvidia-ml-py declares as a tuple by mistake."""
PLACES = {
    0: "one board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "a PCIe host bridge",
    40: "one NUMA node",
    50: "the link between processors",
}
"""NVML's levels of topology: what two cards have in common."""
CONFIG = {"data": {"train": {"kind": "synthetic", "classes": 2, "samples": 2}}}


@dataclass(frozen=True)
class Way:
    """What joins two cards, as the driver tells it."""

    first: int
    second: int
    kind: str


def steps(context: Context) -> int:
    return 2 if context.machine.devices > 1 else 1


def run(context: Context) -> Iterator[Row]:
    machine, folder = context.machine, context.folder_of(SECTION)
    if machine.devices < 2:
        yield skipped(f"{SECTION}.mirrored", "reduction over the devices", "there is one device")
        context.tick()
        return
    ways = read_ways([card.index for card in machine.cards]) if machine.on_gpu else []
    transport = ", ".join(sorted({way.kind for way in ways})) or (
        "unknown" if machine.on_gpu else "memory of the host"
    )
    for way in ways:
        yield measured(
            f"{SECTION}.gpu{way.first}_gpu{way.second}",
            f"GPU {way.first} to GPU {way.second}",
            None,
            note=way.kind,
        )
    yield from _measure(context, folder, "mirrored", 1, transport)
    context.tick()
    if machine.no_ranks is not None:
        yield skipped(f"{SECTION}.horovod", "reduction over Horovod ranks", machine.no_ranks)
    else:
        yield from _measure(context, folder, "horovod", machine.devices, transport)
    context.tick()


def _measure(context: Context, folder: Path, name: str, ranks: int, transport: str) -> Iterator[Row]:
    members = context.machine.devices
    what = f"{quiet.LARGE_BYTES / 1e6:.0f} MB reduced over {members} {'Horovod ranks' if ranks > 1 else 'mirrored devices'}"
    ended = quiet.start(context, folder, "links", CONFIG, seconds=SECONDS, ranks=ranks)
    told = next((answer for answer in answers(ended.stdout) if "reduced_seconds" in answer), None)
    if told is None and ended.too_late:
        yield skipped(f"{SECTION}.{name}", what, ended.why)
    elif told is None:
        yield failed(f"{SECTION}.{name}", what, ended.why or "it said nothing")
    else:
        yield judge(f"{SECTION}.{name}", what, told, members, transport)


def judge(id: str, what: str, told: Mapping[str, Any], members: int, transport: str) -> Row:
    """Pure."""
    size, seconds, tiny = (told[name] for name in ("reduced_bytes", "reduced_seconds", "tiny_seconds"))
    link = link_by_measurement(size, seconds, tiny, members)
    note = (
        f"{transport}; a ring over links of {link.bytes_per_second / 1e9:.2f} GB/s would be as fast; "
        f"1 KB takes {tiny * 1e6:.0f} µs"
    )
    figures = {"transport": transport, "link_bytes_per_second": link.bytes_per_second, "tiny_seconds": tiny}
    return measured(id, what, round(size / 1e9 / seconds, 3), "GB/s", note, seconds=seconds, **figures)


def read_ways(indexes: Sequence[int]) -> list[Way]:
    """From NVML, for each pair of these cards; empty where it tells nothing."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = {index: pynvml.nvmlDeviceGetHandleByIndex(index) for index in indexes}
    except Exception:  # no driver, or a card that was lost: the reduction is measured all the same
        return []
    return [Way(a, b, _kind(pynvml, handles[a], handles[b])) for a, b in combinations(sorted(handles), 2)]


def _kind(nvml: Any, first: Any, second: Any) -> str:
    """NVLink, PCIe from card to card, or through the host: what NCCL chooses by."""

    def works(over: int) -> bool:
        try:
            return nvml.nvmlDeviceGetP2PStatus(first, second, over) == nvml.NVML_P2P_STATUS_OK
        except nvml.NVMLError:
            return False

    if works(nvml.NVML_P2P_CAPS_INDEX_NVLINK):
        return "NVLink"
    try:
        place = PLACES.get(nvml.nvmlDeviceGetTopologyCommonAncestor(first, second), "an unknown path")
    except nvml.NVMLError:
        place = "an unknown path"
    return f"{'PCIe, card to card' if works(P2P_READ) else 'host memory'}, over {place}"
