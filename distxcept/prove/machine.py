"""The devices that `distxcept prove` runs on: found, counted, and large and free enough. No TensorFlow in this process."""

import ast
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from distxcept.config.size import show_size
from distxcept.data.host import free_memory, usable_cores
from distxcept.doctor.child import Probe, ProbeReport
from distxcept.doctor.finding import gib
from distxcept.errors import ConfigError, DistxceptError, DoesNotFitError
from distxcept.memory.cuda_cards import shown_cards
from distxcept.memory.nvml import GpuState, count_gpus
from distxcept.memory.sharing import others_on_card
from distxcept.prove.race.contestants import why_no_ranks

CPU_DEVICES = 2
"""Logical CPUs without a GPU and without --devices: fewer prove nothing about several devices."""
MOST_CPU_DEVICES = 16
PROBE_SECONDS = 120.0
NEEDED_BYTES = {
    ("gpu", True): 3 * 2**30,
    ("gpu", False): 6 * 2**30,
    ("cpu", True): 3 * 2**30,
    ("cpu", False): 4 * 2**30,
}
"""Free memory of each card, or of the host, by kind and `quick`."""
BUSY_PERCENT = 20
"""A card that ran kernels for so much of the moments before the start is used by others. A desktop alone takes less."""
TF32_SINCE = (8, 0)
"""Compute capability."""


@dataclass(frozen=True)
class Machine:
    kind: Literal["gpu", "cpu"]
    devices: int
    cards: tuple[GpuState, ...] = ()
    """Those of the devices, as the driver knew them before the first section."""
    capabilities: tuple[tuple[int, int], ...] = ()
    cores: int = 1
    no_ranks: str | None = None
    """Why Horovod cannot be tried; None if it can."""
    probe: ProbeReport = field(default_factory=ProbeReport)

    @property
    def on_gpu(self) -> bool:
        return self.kind == "gpu"

    @property
    def tf32(self) -> bool:
        """Whether all of its cards have TF32."""
        return bool(self.capabilities) and min(self.capabilities) >= TF32_SINCE

    def __str__(self) -> str:
        if not self.on_gpu:
            return f"{self.devices} logical CPU{'s' * (self.devices > 1)} on {self.cores} core{'s' * (self.cores > 1)}"
        names = {card.name or "GPU" for card in self.cards} or {"GPU"}
        return f"{self.devices} × {' and '.join(sorted(names))}"


def find_machine(wanted: int | None, *, quick: bool, environ: Mapping[str, str] = os.environ) -> Machine:
    """One clear error where these devices do not exist or cannot be used now."""
    shown = shown_cards()
    hidden = environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    if shown and not hidden:
        _check_number(wanted, len(shown))
        check_cards([shown[number] for number in sorted(shown)][: wanted or len(shown)], quick=quick)
    elif hidden or not count_gpus():
        check_host(free_memory(), wanted, quick=quick)
    probe = Probe()
    try:
        report = probe.finish(PROBE_SECONDS)
    finally:
        probe.stop()
    gpus = (report.stage("devices") or {}).get("gpus") or []
    if gpus:
        _check_number(wanted, len(gpus))
        number = wanted or len(gpus)
        cards = tuple(shown[one] for one in sorted(shown))[:number]
        capabilities = tuple(_capability(gpu.get("compute_capability", "")) for gpu in gpus[:number])
        no_ranks = why_no_ranks() or horovod_problem(report, on_gpu=True)
        return Machine("gpu", number, cards, capabilities, usable_cores(), no_ranks, report)
    if report.died_in in ("tensorflow", "devices"):
        raise DistxceptError(f"TensorFlow does not start ({report.how}); `distxcept doctor` says why")
    if count_gpus() and not hidden:
        raise DistxceptError(
            f"the driver has {count_gpus()} GPU{'s' * (count_gpus() > 1)}, but TensorFlow sees none: `distxcept doctor` "
            "says why; to prove the CPU paths only, set CUDA_VISIBLE_DEVICES=-1"
        )
    no_ranks = why_no_ranks() or horovod_problem(report, on_gpu=False)
    return Machine("cpu", wanted or CPU_DEVICES, cores=usable_cores(), no_ranks=no_ranks, probe=report)


def horovod_problem(report: ProbeReport, *, on_gpu: bool) -> str | None:
    """Pure. Why a Horovod that is installed cannot be used on these devices."""
    told = report.stage("horovod") or {}
    if problem := told.get("error"):
        return f"Horovod cannot be imported: {problem}"
    if on_gpu and not told.get("nccl"):
        return "Horovod was built without NCCL (launch/build_horovod.sh --gpu)"
    return None


def _check_number(wanted: int | None, there: int) -> None:
    if wanted is not None and wanted > there:
        raise ConfigError(
            f"--devices is {wanted}, but this machine has {there} usable GPU{'s' * (there > 1)}; use {there} or fewer, or "
            "CUDA_VISIBLE_DEVICES=-1 for logical CPUs"
        )


def check_cards(cards: Sequence[GpuState], *, quick: bool) -> None:
    """Pure. DoesNotFitError for a card that is too small or used by others."""
    needed = NEEDED_BYTES["gpu", quick]
    for card in cards:
        if card.memory_free_bytes is None or card.memory_free_bytes >= needed:
            continue
        name = f"GPU {card.index} ({card.name or 'unknown'})"
        total = card.memory_total_bytes or 0
        if total < needed:
            raise DoesNotFitError(
                f"{name} has {gib(total)} of memory, but prove{' --quick' * quick} needs {gib(needed)}; "
                + ("use a larger card" if quick else "try --quick, or use a larger card")
            )
        raise DoesNotFitError(
            f"{name} has {gib(card.memory_free_bytes)} of {gib(total)} free, but prove{' --quick' * quick} needs "
            f"{gib(needed)}{_user_of(card)}; end what runs there, or choose other cards with CUDA_VISIBLE_DEVICES"
        )


def other_users(cards: Sequence[GpuState]) -> list[str]:
    """Pure. A few words for each card that computes for others, or of which others hold memory."""
    found = []
    for card in cards:
        if (card.utilisation_percent or 0) >= BUSY_PERCENT:
            found.append(f"{card} was {card.utilisation_percent} % busy")
        if shared := others_on_card([card], [os.getpid()], at_work=False):
            found.append(str(shared))
    return found


def _user_of(card: GpuState) -> str:
    """The process that holds most of the card."""
    known = [one for one in card.processes if one.used_bytes]
    if not known:
        return ""
    most = max(known, key=lambda one: one.used_bytes or 0)
    return f": process {most.pid}{f' ({most.name})' if most.name else ''} holds {gib(most.used_bytes or 0)}"


def check_host(free_bytes: int, wanted: int | None, *, quick: bool) -> None:
    """Pure, for logical CPUs."""
    if wanted is not None and wanted > MOST_CPU_DEVICES:
        raise ConfigError(f"--devices is {wanted}, but prove takes {MOST_CPU_DEVICES} logical CPUs at most")
    needed = NEEDED_BYTES["cpu", quick]
    if free_bytes < needed:
        raise DoesNotFitError(
            f"this host has {show_size(free_bytes)} of free memory, but prove{' --quick' * quick} needs {show_size(needed)}"
        )


def _capability(text: str) -> tuple[int, int]:
    """TensorFlow's `(8, 6)`, as text in the probe's answer."""
    try:
        major, minor = ast.literal_eval(text)
        return int(major), int(minor)
    except (ValueError, SyntaxError, TypeError):
        return (0, 0)
