"""Processes of others on the cards of a training. No TensorFlow."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from distxcept.config.size import show_size
from distxcept.memory.nvml import GpuProcess, GpuState

OTHERS_SHARE = 0.02
"""A process with less than this part of a card (a desktop, a monitor) is in nobody's way."""
HARMLESS_PROGRAMS = ("nvidia-cuda-mps-server",)


@dataclass(frozen=True)
class Shared:
    card: GpuState
    others: tuple[GpuProcess, ...]
    one_is_ours: bool
    """Inside a container the driver counts processes otherwise: nobody can say which of them is this training."""

    def __str__(self) -> str:
        named = ", ".join(
            f"{one.name or 'a process'} (pid {one.pid}, {show_size(one.used_bytes or 0)})"
            for one in self.others
        )
        if self.one_is_ours:
            return f"{len(self.others)} processes are on GPU {self.card.index}, one of them this training: {named}"
        return f"GPU {self.card.index} is shared with {named}"


def others_on_card(looks: Sequence[GpuState], own_pids: Collection[int], *, at_work: bool) -> Shared | None:
    """Those that were there at every look at the card, the last of which tells how large they are; None if nobody.

    `at_work`: this training is on the card already.
    """
    now = looks[-1]
    stayed = set.intersection(*({process.pid for process in card.processes} for card in looks))
    present = [process for process in now.processes if process.pid in stayed]
    others = tuple(p for p in present if p.pid not in own_pids and _in_the_way(p, now))
    one_is_ours = at_work and not any(process.pid in own_pids for process in present)
    if len(others) <= int(one_is_ours):
        return None
    return Shared(now, others, one_is_ours)


def told_at_start(cards: Sequence[GpuState], own_pids: Collection[int]) -> list[str]:
    """A sentence for each card of which others hold memory, before this training is on it."""
    shared = (others_on_card([card], own_pids, at_work=False) for card in cards)
    return [
        f"{one}; {show_size(one.card.memory_free_bytes or 0)} are left, and the plan is made for those"
        for one in shared
        if one is not None
    ]


def _in_the_way(process: GpuProcess, card: GpuState) -> bool:
    if process.name in HARMLESS_PROGRAMS or process.used_bytes is None or card.memory_total_bytes is None:
        return False
    return process.used_bytes >= OTHERS_SHARE * card.memory_total_bytes
