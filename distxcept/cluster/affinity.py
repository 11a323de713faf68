"""Which cores a rank uses: each rank of a host gets its own, so that their threads do not push each other around."""

import os
from collections.abc import Sequence

from distxcept.batching import split_contiguous
from distxcept.cluster.placement import Placement


def share_of_cpus(cpus: Sequence[int], local_rank: int, local_size: int) -> list[int]:
    """The rank's contiguous part of `cpus`; all of them where there are more ranks than cores."""
    if local_size > len(cpus):
        return list(cpus)
    block = split_contiguous(len(cpus), (1,) * local_size)[local_rank]
    return [cpus[number] for number in block]


def take_own_cpus(placement: Placement) -> int:
    """Binds this thread, and those it will start, to the rank's cores, unless the launcher has.

    Returns how many threads pay.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if placement.bound:
        return len(cpus)
    share = share_of_cpus(cpus, placement.local_rank, placement.local_size)
    if len(share) < len(cpus):
        os.sched_setaffinity(0, share)
        return len(share)
    return max(1, len(cpus) // placement.local_size)


def binding_notice(placement: Placement, cpus_of_host: int, cpus_of_rank: int) -> str | None:
    """Open MPI's default is one core for a rank, whatever the host has: the input pipeline then starves the GPU."""
    fair = cpus_of_host // placement.local_size
    if not placement.bound or placement.launcher != "mpirun" or cpus_of_rank * 2 > fair:
        return None
    return (
        f"mpirun has bound every rank to {cpus_of_rank} of {cpus_of_host} cores; start it with --bind-to none, or use "
        "distxcept launch"
    )
