"""The control plane: small JSON values between the ranks of a job, beside Horovod's tensors.

Order of start, and why:

* MPI is started here first, by mpi4py on the main thread, then `hvd.init()`. Horovod finds MPI running, checks the
  thread level, and leaves MPI alone at its end. The other order works too, but then Horovod's background thread
  owns MPI and `hvd.shutdown()` finalises it: nothing could be agreed on before TensorFlow is loaded, nor afterwards.
* The thread level is MPI_THREAD_MULTIPLE: Horovod calls MPI from its own thread while we call it from ours. With
  less, Horovod only warns, and crashes later; so less is refused here.
* mpi4py finalises MPI when Python ends, and that waits for every peer. A rank that ends because of an error must
  not wait for peers that wait for it: it calls `abort`.
"""

import json
import os
import time
from array import array
from typing import Any, Protocol

from distxcept.cluster.placement import Placement
from distxcept.errors import ConfigError, PeerLostError

PATIENCE_SECONDS = 300.0

_ARRIVAL_TAG = 1
_LONGEST_PAUSE_SECONDS = 0.02


class Control(Protocol):
    """What the ranks can say to each other. Every rank makes the same calls in the same order."""

    rank: int
    size: int

    def gather(self, value: Any, timeout_seconds: float = PATIENCE_SECONDS) -> list[Any]:
        """Every rank's value on every rank, by rank. Values are whatever JSON can hold."""

    def broadcast(self, value: Any, root: int = 0, timeout_seconds: float = PATIENCE_SECONDS) -> Any:
        """The root's value on every rank; the others' are ignored."""

    def barrier(self, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until every rank is here; PeerLostError names those that did not come in time."""

    def abort(self, exit_code: int) -> None:
        """End the whole job now, this process with it."""


def connect(placement: Placement) -> Control:
    """The control plane of this job. All ranks call it, before `hvd.init()`."""
    if not placement.is_distributed:
        return AloneControl()
    if placement.wire_up in (None, "gloo"):
        raise ConfigError(
            f"{placement.launcher} started {placement.size} tasks without MPI, so they cannot find each other; "
            "start them with `srun --mpi=pmix`, `mpirun` or `horovodrun --mpi`"
        )
    return MpiControl(placement)


class AloneControl:
    """One rank: everybody agrees."""

    rank = 0
    size = 1

    def gather(self, value: Any, timeout_seconds: float = PATIENCE_SECONDS) -> list[Any]:
        return [_decode(_encode(value))]

    def broadcast(self, value: Any, root: int = 0, timeout_seconds: float = PATIENCE_SECONDS) -> Any:
        return _decode(_encode(value))

    def barrier(self, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        pass

    def abort(self, exit_code: int) -> None:
        os._exit(exit_code)


class MpiControl:
    """Over a communicator of its own, so that its messages never meet Horovod's."""

    def __init__(self, placement: Placement):
        self._mpi = _start_mpi()
        world = self._mpi.COMM_WORLD
        _check_same_world(placement, world.Get_rank(), world.Get_size(), self._mpi.Get_library_version())
        self.rank, self.size = world.Get_rank(), world.Get_size()
        self._comm = world.Dup()

    def gather(self, value: Any, timeout_seconds: float = PATIENCE_SECONDS) -> list[Any]:
        mine = _encode(value)
        self.barrier(timeout_seconds)
        lengths = array("q", [0] * self.size)
        self._comm.Allgather([array("q", [len(mine)]), self._mpi.INT64_T], [lengths, self._mpi.INT64_T])
        joined = bytearray(sum(lengths))
        self._comm.Allgatherv([mine, self._mpi.BYTE], [joined, list(lengths), self._mpi.BYTE])
        ends = [sum(lengths[: rank + 1]) for rank in range(self.size)]
        return [_decode(joined[end - length : end]) for end, length in zip(ends, lengths, strict=True)]

    def broadcast(self, value: Any, root: int = 0, timeout_seconds: float = PATIENCE_SECONDS) -> Any:
        mine = _encode(value) if self.rank == root else b""
        self.barrier(timeout_seconds)
        length = array("q", [len(mine)])
        self._comm.Bcast([length, self._mpi.INT64_T], root)
        message = bytearray(mine) if self.rank == root else bytearray(length[0])
        self._comm.Bcast([message, self._mpi.BYTE], root)
        return _decode(message)

    def barrier(self, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Empty messages from each to each, because MPI's own barrier cannot say who is missing."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        nothing = [b"", self._mpi.BYTE]
        sent = [self._comm.Isend(nothing, rank, _ARRIVAL_TAG) for rank in others]
        arrivals = [
            (rank, self._comm.Irecv([bytearray(), self._mpi.BYTE], rank, _ARRIVAL_TAG)) for rank in others
        ]
        deadline = time.monotonic() + timeout_seconds
        pause_seconds = 0.0
        while arrivals:
            arrivals = [(rank, request) for rank, request in arrivals if not request.Test()]
            if arrivals and time.monotonic() > deadline:
                missing = ", ".join(str(rank) for rank, _ in arrivals)
                raise PeerLostError(
                    f"rank {self.rank} waited {timeout_seconds:g} s in vain for rank {missing} of {self.size}; "
                    "look into the log of that rank first, then start the job again"
                )
            time.sleep(pause_seconds)
            pause_seconds = min(_LONGEST_PAUSE_SECONDS, pause_seconds * 2 + 0.0001)
        self._mpi.Request.Waitall(sent)

    def abort(self, exit_code: int) -> None:
        self._comm.Abort(exit_code)


def _start_mpi() -> Any:
    """mpi4py's MPI, started with full thread support (see the head of this file)."""
    try:
        import mpi4py
    except ImportError:
        raise ConfigError(
            "mpi4py is not installed, and several tasks need it to agree; `pip install 'distxcept[horovod]'`"
        ) from None
    mpi4py.rc.thread_level = "multiple"
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"mpi4py finds no MPI library ({error}); install one, e.g. `apt-get install openmpi-bin libopenmpi-dev`"
        ) from None
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise ConfigError(
            "this MPI was started without MPI_THREAD_MULTIPLE, which Horovod beside mpi4py needs; "
            "use an MPI built with it, and do not set HOROVOD_MPI_THREADS_DISABLE"
        )
    return MPI


def _check_same_world(placement: Placement, rank: int, size: int, library: str) -> None:
    """The launcher and the MPI library can belong to different MPIs; then every task is a world of its own."""
    if (rank, size) != (placement.rank, placement.size):
        raise ConfigError(
            f"{placement.launcher} says that this is rank {placement.rank} of {placement.size}, but the MPI library "
            f"({library.split(',')[0].strip()}) says rank {rank} of {size}: they belong to different MPIs; use the "
            "launcher of that library (for mpi4py MPI4PY_LIBMPI names another one), or `srun --mpi=pmix`"
        )


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _decode(message: bytes | bytearray) -> Any:
    return json.loads(message)
