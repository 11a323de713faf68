"""The answer to "who am I": one value, checked once."""

from dataclasses import dataclass
from typing import Literal

Launcher = Literal["local", "mpirun", "hydra", "horovodrun", "srun"]

# How the tasks of a job find each other. None for several tasks means that they cannot: no MPI was set up.
WireUp = Literal["pmix", "pmi", "pmi2", "gloo"]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """This process among the processes of its job."""

    launcher: Launcher
    """`mpirun` is Open MPI's, `hydra` is MPICH's. `horovodrun --mpi` turns itself into mpirun and is reported as
    that; so `horovodrun` here means its Gloo mode."""
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Rank among the processes on the same host: it decides which GPU is this one's."""
    local_size: int = 1
    host: str | None = None
    """This process's host as the launcher calls it, where it says so."""
    hosts: tuple[str, ...] = ()
    """All hosts of the job, where the launcher says so (srun)."""
    wire_up: WireUp | None = None
    bound: bool = False
    """The launcher has given each of its tasks cores of its own."""
    notice: str | None = None
    """Something the user should be told although the job can run."""

    @property
    def is_distributed(self) -> bool:
        return self.size > 1
