"""What lies between the devices: links by name or by measurement, and how long a reduction over them takes. Pure.

ring            every device passes on a part of the data, 2·(N − 1) times
tree            the data goes up a tree of the nodes and down again: few steps, so little latency
hierarchical    a ring within each node, then a ring of the nodes
auto            the faster of ring and tree, which is what NCCL chooses by
"""

import re
from dataclasses import dataclass
from math import ceil, log2
from typing import Literal

from distxcept.errors import ConfigError

Algorithm = Literal["auto", "ring", "tree", "hierarchical"]


@dataclass(frozen=True)
class Link:
    name: str
    bytes_per_second: float
    """In one direction, as a reduction really gets them."""
    latency_seconds: float
    """Of one message."""


# Nominal bytes a second in one direction. The plain names mean the oldest generation that is still common.
_NOMINAL = {
    "pcie3": 15.75e9,
    "pcie4": 31.5e9,
    "pcie5": 63.0e9,
    "nvlink2": 150e9,
    "nvlink3": 300e9,
    "nvlink4": 450e9,
}
_ALIASES = {"pcie": "pcie3", "nvlink": "nvlink2"}

# Assumed: the part of the nominal speed that a large reduction gets, and the time of a message.
INSIDE_PART, INSIDE_LATENCY = 0.75, 5e-6
TCP_PART, TCP_LATENCY = 0.7, 30e-6
RDMA_PART, RDMA_LATENCY = 0.9, 5e-6

DEFAULT_INSIDE, DEFAULT_BETWEEN = "pcie", "25Gb"
_ETHERNET = re.compile(r"(\d{1,4}(?:\.\d+)?)gb(-rdma)?", re.IGNORECASE)
_MEASURED = re.compile(r"(\d{1,6}(?:\.\d+)?)GB/s(?:@(\d{1,7}(?:\.\d+)?)us)?", re.IGNORECASE)
USAGE = (
    "write it like 100Gb, 100Gb-rdma (InfiniBand, RoCE), 1.5GB/s or 1.5GB/s@50us (measured); within a node pcie, pcie3 "
    "to pcie5, nvlink, nvlink2 to nvlink4; both as nvlink,100Gb"
)


@dataclass(frozen=True)
class Network:
    inside: Link
    """Between the devices of a node."""
    between: Link
    """Between nodes; all devices of a node share it."""
    per_node: int
    algorithm: Algorithm = "auto"

    def reduction_seconds(self, size_bytes: float, world: int) -> float:
        """Of one reduction over all devices."""
        if world < 2 or size_bytes <= 0:
            return 0.0
        if self.algorithm == "auto":
            return min(self._ring(size_bytes, world), self._tree(size_bytes, world))
        of = {"ring": self._ring, "tree": self._tree, "hierarchical": self._hierarchical}
        return of[self.algorithm](size_bytes, world)

    def _slowest(self, world: int) -> Link:
        """A ring or a tree is as fast as the slowest link that it crosses."""
        links = [self.inside] if world > 1 and self.per_node > 1 else []
        links += [self.between] if world > self.per_node else []
        return Link(
            "",
            min(link.bytes_per_second for link in links),
            max(link.latency_seconds for link in links),
        )

    def _ring(self, size_bytes: float, world: int) -> float:
        return _ring_seconds(size_bytes, world, self._slowest(world))

    def _tree(self, size_bytes: float, world: int) -> float:
        nodes, local = ceil(world / self.per_node), min(world, self.per_node)
        depth = ceil(log2(nodes)) if nodes > 1 else 0
        latency = 2 * (depth * self.between.latency_seconds + (local - 1) * self.inside.latency_seconds)
        return latency + 2 * size_bytes / self._slowest(world).bytes_per_second

    def _hierarchical(self, size_bytes: float, world: int) -> float:
        nodes, local = ceil(world / self.per_node), min(world, self.per_node)
        return _ring_seconds(size_bytes, local, self.inside) + _ring_seconds(size_bytes, nodes, self.between)

    def __str__(self) -> str:
        return f"{self.inside.name} within nodes of {self.per_node}, {self.between.name} between them"


def _ring_seconds(size_bytes: float, members: int, link: Link) -> float:
    part = size_bytes / members / link.bytes_per_second
    return 2 * (members - 1) * (link.latency_seconds + part)


def link_by_measurement(size_bytes: float, seconds: float, small_seconds: float, members: int) -> Link:
    """The link over which a ring of so many would take these times, for a large reduction and for a tiny one."""
    steps = 2 * (members - 1)
    latency = small_seconds / steps
    moving = max(seconds - small_seconds, 0.01 * seconds)
    return Link("measured", steps * size_bytes / members / moving, latency)


def parse_network(text: str | None, *, per_node: int, algorithm: Algorithm = "auto") -> Network:
    """`nvlink,100Gb`, or one of the two; what is not given is assumed."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    inside = [word for word in words if _inside(word)]
    between = [word for word in words if not _inside(word)]
    between_links = [_between(word) for word in between or [DEFAULT_BETWEEN]]
    if len(inside) > 1 or len(between) > 1:
        raise ConfigError(f"--network {text!r} names more than one link for the same place; {USAGE}")
    across = between_links[0]
    if not inside and between and _MEASURED.fullmatch(between[0]):
        return Network(across, across, per_node, algorithm)  # ranks of one node may be all that was measured
    within = _inside((inside or [DEFAULT_INSIDE])[0])
    assert within is not None
    return Network(within, across, per_node, algorithm)


def _inside(word: str) -> Link | None:
    name = word.lower()
    nominal = _NOMINAL.get(_ALIASES.get(name, name))
    return None if nominal is None else Link(name, nominal * INSIDE_PART, INSIDE_LATENCY)


def _between(word: str) -> Link:
    if (found := _MEASURED.fullmatch(word)) and float(found[1]) > 0:
        latency = float(found[2]) * 1e-6 if found[2] else TCP_LATENCY
        return Link(word, float(found[1]) * 1e9, latency)
    if (found := _ETHERNET.fullmatch(word)) and float(found[1]) > 0:
        part, latency = (RDMA_PART, RDMA_LATENCY) if found[2] else (TCP_PART, TCP_LATENCY)
        return Link(word, float(found[1]) * 1e9 / 8 * part, latency)
    raise ConfigError(f"--network: {word[:60]!r} is no known link; {USAGE}")
