"""Before the first update of several ranks: do they reach each other, run the same programs, how fast is the way between.

Every rank does the same small work and one reduction; then all know what each of them found. What cannot work is an error,
what will be slow is said, with the rank and its host.
"""

import json
import platform
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import tensorflow as tf

from distxcept import __version__
from distxcept.cluster.machine import installed_versions
from distxcept.engines import Engine
from distxcept.errors import ConfigError
from distxcept.memory.links import link_by_measurement
from distxcept.memory.nvml import read_cards
from distxcept.training.own_cards import check_one_rank_per_card, places_of_devices

REDUCED_BYTES = 100_000_000
CLOCK_SECONDS = 2.0
"""Clocks that differ by more make logs and heartbeats of different hosts hard to compare."""
SLOW_FACTOR = 1.7

_PACKAGES = ("tensorflow", "keras", "numpy", "horovod", "mpi4py")
_WORK_SIZE, _WORK_TIMES = 256, 7
TINY_BYTES, _TINY_TIMES = 1024, 5


@dataclass(frozen=True, kw_only=True)
class RankFacts:
    rank: int
    host: str
    versions: dict[str, str]
    clock: float
    """Read right after all ranks have met."""
    work_seconds: float
    """The shortest of several equal pieces of work: what the device can do, not what disturbed it."""
    reduction_seconds: float
    tiny_seconds: float = 0.0
    """Of a reduction of next to nothing: the latency of all its messages."""
    free_gpu_bytes: int | None = None

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"


def preflight(engine: Engine, *, reduced_bytes: int) -> list[str]:
    """Eager, on every rank. What the user should know; nothing for a single rank."""
    if engine.ranks == 1:
        return []
    check_one_rank_per_card(engine)  # all ranks meet here
    clock = time.time()
    device = engine.devices()[0]
    facts = RankFacts(
        rank=engine.rank,
        host=socket.gethostname(),
        versions=_versions(),
        clock=clock,
        work_seconds=_work(device),
        reduction_seconds=reduce_seconds(engine, device, reduced_bytes),
        tiny_seconds=min(reduce_seconds(engine, device, TINY_BYTES) for _ in range(_TINY_TIMES)),
        free_gpu_bytes=_free_gpu_bytes(engine.devices()),
    )
    gathered = [RankFacts(**json.loads(text)) for text in engine.exchange(json.dumps(asdict(facts)).encode())]
    return judge(gathered, reduced_bytes)


def judge(ranks: Sequence[RankFacts], reduced_bytes: int) -> list[str]:
    """Pure. ConfigError where ranks run different programs."""
    first = ranks[0]
    for other in ranks[1:]:
        for name in sorted({*first.versions, *other.versions}):
            mine, theirs = first.versions.get(name, "none"), other.versions.get(name, "none")
            if mine != theirs:
                raise ConfigError(
                    f"{other} has {name} {theirs}, but {first} has {name} {mine}: they may compute different things; "
                    "install the same version everywhere"
                )
    hosts = len({rank.host for rank in ranks})
    seconds = max(rank.reduction_seconds for rank in ranks)
    spread = max(rank.clock for rank in ranks) - min(rank.clock for rank in ranks)
    notices = [
        f"preflight: {len(ranks)} ranks on {hosts} host{'s' * (hosts > 1)}, {reduced_bytes / 1e6:.0f} MB reduced in "
        f"{seconds:.2f} s ({reduced_bytes / 1e9 / max(seconds, 1e-9):.2f} GB/s)"
        + _link_words(ranks, reduced_bytes)
        + _memory_words(ranks)
    ]
    if spread > CLOCK_SECONDS:
        late, early = min(ranks, key=_clock), max(ranks, key=_clock)
        notices.append(f"the clocks of {late} and {early} differ by {spread:.1f} s; synchronise them (NTP)")
    usual = median(rank.work_seconds for rank in ranks)
    notices += [
        f"{rank} takes {rank.work_seconds / usual:.1f} × as long as the median for the same work: all others will "
        "wait for it; is the device busy or throttled?"
        for rank in ranks
        if rank.work_seconds > SLOW_FACTOR * usual
    ]
    return notices


def _clock(rank: RankFacts) -> float:
    return rank.clock


def _link_words(ranks: Sequence[RankFacts], reduced_bytes: int) -> str:
    """What `distxcept plan --network` takes, to predict the speed of other numbers of ranks."""
    tiny = max(rank.tiny_seconds for rank in ranks)
    if not tiny:
        return ""
    seconds = max(rank.reduction_seconds for rank in ranks)
    link = link_by_measurement(reduced_bytes, seconds, tiny, len(ranks))
    return f", plan --network {link.bytes_per_second / 1e9:.2f}GB/s@{link.latency_seconds * 1e6:.0f}us"


def _memory_words(ranks: Sequence[RankFacts]) -> str:
    known = [rank for rank in ranks if rank.free_gpu_bytes is not None]
    if not known:
        return ""
    least = min(known, key=lambda rank: rank.free_gpu_bytes or 0)
    return f", least free GPU memory {(least.free_gpu_bytes or 0) / 2**30:.1f} GiB ({least})"


def _versions() -> dict[str, str]:
    installed = installed_versions(_PACKAGES)
    return {"distxcept": __version__, "Python": platform.python_version(), **installed}


def _work(device: str) -> float:
    with tf.device(device):
        matrix = tf.ones([_WORK_SIZE, _WORK_SIZE])
        return min(_seconds_of(lambda: tf.reduce_sum(matrix @ matrix)) for _ in range(_WORK_TIMES))


def reduce_seconds(engine: Engine, device: str, reduced_bytes: int) -> float:
    """Eager, on every rank. Of one reduction of so many bytes."""
    with tf.device(device):
        engine.sum([tf.ones([256])], [])  # opens the connections
        values = tf.ones([reduced_bytes // 4])
        return _seconds_of(lambda: engine.sum([values], [])[0][0][0])


def _seconds_of(work: Any) -> float:
    began = time.perf_counter()
    work().numpy()  # waits for the device
    return time.perf_counter() - began


def _free_gpu_bytes(devices: Sequence[str]) -> int | None:
    """Of the fullest of this rank's cards."""
    cards = read_cards(places_of_devices(devices))
    told = [card.memory_free_bytes for card in cards if card.memory_free_bytes is not None]
    return min(told, default=None)
