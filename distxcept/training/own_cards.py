"""The cards of this process: their numbers in CUDA and in the driver, their memory, their state, and who shares them."""

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import psutil
import tensorflow as tf

from distxcept.config.schema import MemorySection
from distxcept.engines import Engine
from distxcept.errors import (
    ConfigError,
    DistxceptError,
    DoesNotFitError,
    LostForMemoryError,
    PeerLostError,
    on_all_ranks,
)
from distxcept.memory.budget import cards_budget
from distxcept.memory.cuda_cards import cuda_devices, places_of, read_devices
from distxcept.memory.nvml import CardPlace, GpuState, read_cards
from distxcept.memory.sharing import others_on_card


class StartReading:
    """What the driver told of this process's cards before TensorFlow took any of their memory.

    The limit of the run, its budget and the limit of its trials all come from this one reading.
    """

    def __init__(self, memory: MemorySection):
        self._memory = memory
        self.cards: list[GpuState] = []

    def limit_bytes(self, ordinals: Sequence[int]) -> int | None:
        """From CUDA's numbers of the cards that the engine takes to what TensorFlow may take of each of them."""
        self.cards = list(read_devices(ordinals).values())
        check_cards_work(self.cards)
        budget = cards_budget(self.cards, self._memory)
        if budget.tensor_bytes < 2**20:
            others = [others_on_card([card], [os.getpid()], at_work=False) for card in self.cards]
            raise DoesNotFitError(
                f"no memory is left for the training on {socket.gethostname()}: {budget.name}, and CUDA and memory.reserve "
                "need more than that; end other processes on the card, or name other cards in engine.devices"
                + "".join(f"; {one}" for one in others if one is not None)
            )
        return budget.allocator_bytes


def check_cards_work(cards: Sequence[GpuState]) -> None:
    """DistxceptError that names a card that the driver cannot use."""
    for card in cards:
        if card.problem is not None:
            raise DistxceptError(
                f"{card} of {socket.gethostname()} cannot be used: {card.problem}; reset it (nvidia-smi -r) or restart the "
                "machine, or leave it out (engine.devices, CUDA_VISIBLE_DEVICES)"
            )


@contextmanager
def lost_cards_named(engine: Engine) -> Iterator[None]:
    """Around a training. Where it fails and one of its cards is lost, the error says so instead of TensorFlow's."""
    places = places_of_devices(engine.devices())
    try:
        yield
    except Exception as error:
        lost = lost_card_error(engine, places)
        if lost is None or (isinstance(error, DistxceptError) and not isinstance(error, LostForMemoryError)):
            raise
        raise lost from error


def lost_card_error(engine: Engine, places: Sequence[CardPlace]) -> DistxceptError | None:
    """The error that names the first of these cards that the driver has lost; None if it has all of them.

    The launcher restarts ranks after PeerLostError; a single process ends with 1.
    """
    lost = [card for card in read_cards(places) if card.lost]
    if not lost:
        return None
    kind = PeerLostError if engine.ranks > 1 else DistxceptError
    return kind(
        f"{lost[0]} of {socket.gethostname()} was lost during the training ({lost[0].problem}); reset it "
        "(nvidia-smi -r) or restart the machine, then run the same command again: it resumes from the last snapshot"
    )


def places_of_devices(devices: Sequence[str]) -> list[CardPlace]:
    """The driver's names of TensorFlow's devices GPU:K; a rank sees its own card as GPU:0, wherever it is."""
    # Without a GPU the driver is left alone: a run on the CPU has no business with it.
    return places_of(cuda_ordinals(devices))


def cuda_ordinals(devices: Sequence[str]) -> list[int]:
    """CUDA's numbers of TensorFlow's devices GPU:K: those of a process that has hidden none of its cards."""
    gpus = [device for device in devices if device.startswith("GPU")]
    visible = tf.config.get_visible_devices("GPU") if gpus else []
    return [int(visible[int(gpu.partition(":")[2])].name.rpartition(":")[2]) for gpu in gpus]


def device_for_child(device: str) -> str:
    """The name of this process's device in a child, which sees all cards that CUDA shows to this one."""
    ordinals = cuda_ordinals([device])
    return f"GPU:{ordinals[0]}" if ordinals else device


def pids_of_job(engine: Engine) -> set[int]:
    """This process and the ranks beside it: an MPI library may hold a little of its neighbours' cards."""
    own = psutil.Process()
    if engine.local_ranks == 1:
        return {own.pid}
    try:
        parent = own.parent()
        return {own.pid} | {child.pid for child in (parent.children() if parent else [])}
    except psutil.Error:  # a host may hide the processes of others
        return {own.pid}


@dataclass(frozen=True, kw_only=True)
class RankCard:
    """The device of a rank."""

    rank: int
    host: str
    on_cpu: bool
    bus_id: str | None = None
    uuid: str | None = None
    """Differs between the MIG slices of a card, which have the same bus id."""


def check_one_rank_per_card(engine: Engine) -> None:
    """Eager, on every rank, before any of them computes on its card. ConfigError, the same on all ranks."""
    if engine.ranks == 1:
        return
    found = list(cuda_devices(cuda_ordinals(engine.devices())).values())
    bus_id, uuid = (found[0].bus_id, found[0].uuid) if found else (None, None)
    own = RankCard(
        rank=engine.rank, host=socket.gethostname(), on_cpu=engine.on_cpu, bus_id=bus_id, uuid=uuid
    )
    gathered = [RankCard(**json.loads(one)) for one in engine.exchange(json.dumps(asdict(own)).encode())]
    problem = card_problem(gathered)
    if problem:
        raise on_all_ranks(ConfigError(problem))


def card_problem(ranks: Sequence[RankCard]) -> str | None:
    """Pure. What is wrong with the devices of the ranks."""
    on_gpu, on_cpu = [one for one in ranks if not one.on_cpu], [one for one in ranks if one.on_cpu]
    if on_gpu and on_cpu:
        return (
            f"rank {on_cpu[0].rank} on {on_cpu[0].host} has no GPU, but rank {on_gpu[0].rank} on {on_gpu[0].host} has one; "
            "start at most one rank for each GPU, and see distxcept doctor on that host"
        )
    by_card: dict[tuple[str, str, str | None], list[int]] = {}
    for one in on_gpu:
        if one.bus_id is not None:
            by_card.setdefault((one.host, one.bus_id, one.uuid), []).append(one.rank)
    for (host, bus_id, _), sharing in by_card.items():
        if len(sharing) > 1:
            return (
                f"ranks {' and '.join(map(str, sharing))} on {host} use the same card (PCI bus id {bus_id}); start at most "
                "one rank for each GPU of a host; CUDA_VISIBLE_DEVICES must show each rank its own card, or all cards"
            )
    return None
