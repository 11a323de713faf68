"""What a person should know about the running devices: said when it is true, once, with the remedy.

Each judgement is a function over the latest samples. Where the figures leave a doubt, nothing is said.
"""

import statistics
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from distxcept.config.size import show_size
from distxcept.memory.creep import LOOK_EVERY, Creep, History
from distxcept.memory.nvml import GpuState
from distxcept.memory.sample import Moment, Sample
from distxcept.memory.sharing import others_on_card

WINDOW = 24
"""Samples of training that a judgement looks at: two minutes at the usual 5 seconds."""
THROTTLED_SHARE = 0.25
POWER_CLOCK = 0.8
"""Almost every card touches its power limit under load; it matters when clocks are below this part of their maximum."""
LOW_UTILISATION = 70
HIGH_DATA_WAIT = 0.1
WARM_UP_UPDATES = 20
SETTLING_UPDATES = 50
OTHERS_SAMPLES = 3

Larger = Callable[[Moment, int], tuple[int, int] | None]
"""(the moment, bytes free on the fullest card) → the largest micro batch that would fit besides, and its micro steps."""


@dataclass(frozen=True)
class Notice:
    kind: str
    subject: str
    """What it is about; a kind is said once of a subject."""
    message: str
    details: dict[str, Any] = field(default_factory=dict)


class Judge:
    """Keeps the samples that the judgements need, and what has been said."""

    def __init__(
        self,
        *,
        own_pids: Collection[int],
        larger: Larger,
        host_free_bytes: Callable[[], int],
        settling_updates: int = SETTLING_UPDATES,
    ):
        self._own_pids, self._larger, self._host_free = frozenset(own_pids), larger, host_free_bytes
        self._settling = settling_updates
        self._first_update: int | None = None
        self._recent: deque[Sample] = deque(maxlen=OTHERS_SAMPLES)
        self._training: deque[Sample] = deque(maxlen=WINDOW)
        self._histories: dict[str, History] = {}
        self._settled = 0
        self._said: set[tuple[str, str]] = set()

    def look(self, sample: Sample) -> list[Notice]:
        self._keep(sample)
        found = [*shared_cards(self._recent, self._own_pids)]
        if sample.moment.phase == "train" and len(self._training) == WINDOW:
            found += throttled(self._training)
            found += idle_while_more_fits(self._training, self._larger)
        found += self._creeping(sample)
        fresh = [notice for notice in found if (notice.kind, notice.subject) not in self._said]
        self._said |= {(notice.kind, notice.subject) for notice in fresh}
        return fresh

    def _keep(self, sample: Sample) -> None:
        moment = sample.moment
        self._recent.append(sample)
        if moment.phase != "train":
            return
        if self._first_update is None:
            self._first_update = moment.update
        if self._training and not _same_plan(self._training[-1].moment, moment):
            # Another plan: traced again, other memory. All begins anew.
            self._training.clear()
            self._histories.clear()
            self._first_update = moment.update
        if moment.update - self._first_update >= WARM_UP_UPDATES:
            self._training.append(sample)

    def _creeping(self, sample: Sample) -> Iterable[Notice]:
        settled = sample.settled
        if settled is None or self._first_update is None:
            return
        if settled.update - self._first_update < self._settling:
            return
        held: list[tuple[str, int, GpuState | None]] = [("host", settled.host_bytes, None)]
        if len(settled.device_bytes) == len(sample.cards):
            held += [
                (f"GPU {card.index}", size, card)
                for card, size in zip(sample.cards, settled.device_bytes, strict=True)
            ]
        self._settled += 1
        for subject, size, card in held:
            history = self._histories.setdefault(subject, History())
            history.add(settled.update, size)
            creep = history.look() if self._settled % LOOK_EVERY == 0 else None
            if creep is not None:
                yield creeping(subject, creep, card.memory_free_bytes if card else self._host_free())


def throttled(window: Sequence[Sample]) -> Iterable[Notice]:
    for cards in _by_card(window):
        name, enough = f"GPU {cards[0].index}", THROTTLED_SHARE * len(cards)
        thermal = _with(cards, "thermal_software", "thermal_hardware")
        brake = _with(cards, "power_brake")
        slowed = [
            card for card in _with(cards, "hardware_slowdown") if card not in thermal and card not in brake
        ]
        capped = [card for card in _with(cards, "power_cap") if _clock_share(card) < POWER_CLOCK]
        if len(thermal) >= enough:
            yield Notice(
                "thermal_throttling",
                name,
                f"{name} is too hot ({_highest_temperature(thermal)}) and runs at {_clocks(thermal)}: give it more air, "
                f"or less to burn: nvidia-smi -i {cards[0].index} -pl WATTS",
            )
        if len(brake) >= enough:
            yield Notice(
                "power_throttling",
                name,
                f"{name} is held back by the power supply (power brake) and runs at {_clocks(brake)}: check the supply "
                "and its cables",
            )
        if len(slowed) >= enough:
            yield Notice(
                "hardware_slowdown",
                name,
                f"{name} slows itself down and runs at {_clocks(slowed)}, for heat or for power: check cooling and supply",
            )
        if len(capped) >= enough:
            limit = capped[-1].power_limit_watts
            now = "" if limit is None else f" of {limit:.0f} W"
            yield Notice(
                "power_throttling",
                name,
                f"{name} is at its power limit{now} and runs at {_clocks(capped)}: raise the limit if the card allows, "
                f"nvidia-smi -i {cards[0].index} -pl WATTS",
            )


def shared_cards(window: Sequence[Sample], own_pids: Collection[int]) -> Iterable[Notice]:
    """Processes of others that were there in every sample of the window."""
    if len(window) < OTHERS_SAMPLES:
        return
    for cards in _by_card(window):
        shared = others_on_card(cards, own_pids, at_work=True)
        if shared is None:
            continue
        one = len(shared.others) == 1
        remedy = (
            f"end {'it' if one else 'the others'}, or set memory.limit so that {'both' if one else 'all'} fit"
        )
        listed = [{"pid": p.pid, "name": p.name, "bytes": p.used_bytes} for p in shared.others]
        yield Notice("shared_card", f"GPU {shared.card.index}", f"{shared}: {remedy}", {"processes": listed})


def idle_while_more_fits(window: Sequence[Sample], larger: Larger) -> Iterable[Notice]:
    """Cards that wait although they could do more at once. Waiting for data is another matter, told elsewhere."""
    moment = window[-1].moment
    if moment.update == window[0].moment.update or not window[-1].cards:
        return
    if statistics.fmean(sample.data_wait for sample in window) >= HIGH_DATA_WAIT:
        return
    busy, spare = [], []
    for cards in _by_card(window):
        rates = [card.utilisation_percent for card in cards]
        free = [card.memory_free_bytes for card in cards]
        if None in rates or None in free or len(cards) < len(window):
            return
        busy.append(statistics.median(rate for rate in rates if rate is not None))
        spare.append(min(size for size in free if size is not None))
    if max(busy) >= LOW_UTILISATION:
        return
    fitting = larger(moment, min(spare))
    if fitting is None:
        return
    micro, steps = fitting
    which = f"GPU {window[-1].cards[0].index} is" if len(busy) == 1 else "the GPUs are"
    yield Notice(
        "low_utilisation",
        "cards",
        f"{which} busy only {max(busy):.0f} % of the time with micro batch {moment.micro_batch}, and {micro} would fit: "
        f"set batch.micro={micro} for {steps} micro step{'s' * (steps > 1)} an update, to the same result",
        {"micro": micro},
    )


def creeping(subject: str, creep: Creep, free_bytes: int | None) -> Notice:
    where = "this process on the host" if subject == "host" else subject
    lasts = (
        ""
        if free_bytes is None
        else f"; what is free lasts for {free_bytes / creep.bytes_per_update:,.0f} more"
    )
    return Notice(
        "memory_creeps",
        subject,
        f"memory of {where} grows by {show_size(round(creep.bytes_per_update))} an update without an end (since update "
        f"{creep.since_update} by {show_size(creep.rise_bytes)}{lasts}): a leak; stopping and running the same command "
        "again goes on with fresh memory",
        {"bytes_per_update": round(creep.bytes_per_update), "rise_bytes": creep.rise_bytes},
    )


def _same_plan(one: Moment, other: Moment) -> bool:
    return (one.micro_batch, one.remat) == (other.micro_batch, other.remat)


def _by_card(window: Sequence[Sample]) -> list[list[GpuState]]:
    found: dict[int, list[GpuState]] = {}
    for sample in window:
        for card in sample.cards:
            found.setdefault(card.index, []).append(card)
    return list(found.values())


def _with(cards: Sequence[GpuState], *reasons: str) -> list[GpuState]:
    return [card for card in cards if any(reason in card.throttling for reason in reasons)]


def _clock_share(card: GpuState) -> float:
    if card.sm_clock_mhz is None or not card.sm_clock_max_mhz:
        return 1.0
    return card.sm_clock_mhz / card.sm_clock_max_mhz


def _clocks(cards: Sequence[GpuState]) -> str:
    return f"{statistics.median(_clock_share(card) for card in cards):.0%} of its clock rate"


def _highest_temperature(cards: Sequence[GpuState]) -> str:
    known = [card.temperature_celsius for card in cards if card.temperature_celsius is not None]
    return f"{max(known)} °C" if known else "temperature unknown"
