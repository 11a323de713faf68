"""A rank at work: it holds the run's lock, shows that it lives, and says how it ended and who failed first."""

import faulthandler
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

from distxcept.cluster.health import Health
from distxcept.cluster.lock import RunLock
from distxcept.cluster.peers import Peer
from distxcept.cluster.sameness import code_version, disagreement
from distxcept.cluster.status import forget_statuses, read_status
from distxcept.config.schema import Config
from distxcept.errors import ConfigError, DistxceptError, PeerLostError, StopRequested, one_line
from distxcept.training.signals import StopSignals

MOST_WATCHED = 16
"""Peers whose files a rank reads; a loss that it does not see reaches it through those that do."""
CAUSE_SECONDS = 5.0
"""After an error of its own a rank looks so long for a peer's loss that explains it."""


class Ranks(Protocol):
    """What is needed of an engine."""

    rank: int
    ranks: int

    def exchange(self, message: bytes) -> list[bytes]: ...


class Attendance:
    """Entered by every rank of the job together, after the engine is there. Afterwards `exit_code` is the rank's."""

    def __init__(self, engine: Ranks, run_folder: Path, config: Config, signals: StopSignals):
        self._engine, self._folder, self._config = engine, run_folder, config
        self._timeout = config.engine.peer_timeout
        self._signals = signals
        self._lock = RunLock(run_folder, self._timeout)
        self._log: IO[str] | None = None
        self.exit_code = 0

    @property
    def _chief(self) -> bool:
        return self._engine.rank == 0

    def __enter__(self) -> "Attendance":
        peers = self._meet()
        self._open_log()
        self.health = Health(self._folder, self._engine.rank, self._engine.ranks, peers, self._timeout)
        self.health.say = self._signals.say
        self.health.start()
        self._signals.quiet = not self._chief
        self._signals.on_request = self.health.stop_requested
        self._signals.before_exit = self._interrupted
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """True if the error has been dealt with. Some errors end the process here: its peers would hold up its end."""
        try:
            return self._ended(error)
        finally:
            self._signals.on_request = lambda: None
            self._signals.before_exit = lambda code: None
            self._lock.release()

    def _ended(self, error: BaseException | None) -> bool:
        if error is None:
            self.health.end("done", 0)
            return True
        if isinstance(error, StopRequested):
            self.exit_code = error.exit_code
            self.health.end("stopped", error.exit_code)
            return not self._chief
        if self._engine.ranks == 1:
            self.health.end("failed", exit_code_of(error), error)
            return False
        self._write_log(error)
        if isinstance(error, DistxceptError):
            return self._refused(error)
        loss = None
        if _may_be_a_consequence(error):
            loss = self.health.cause_elsewhere(CAUSE_SECONDS)
            reason = str(error).strip().partition("\n")[0][:500]
            error = PeerLostError(
                loss.message if loss else f"a reduction failed, and no rank says why: {reason}"
            )
        self.health.end("failed", exit_code_of(error), error, loss)
        if loss is not None:
            self.health.tell_of(loss, partial(self._say, error))
        elif self._is_first():
            self._say(error)
        self.health.before_exit()
        self._lock.release()
        sys.stdout.flush()
        os._exit(exit_code_of(error))

    def _refused(self, error: DistxceptError) -> bool:
        """Mostly all ranks come to it alike, and the chief tells it; else this rank does."""
        self.exit_code = error.exit_code
        self.health.end("failed", error.exit_code, error)
        if self._chief:
            return False
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            chief = read_status(self._folder, 0)
            if chief is not None and chief.kind == type(error).__name__:
                return True
            time.sleep(0.05)
        self._say(error)
        os._exit(error.exit_code)

    def _is_first(self) -> bool:
        """Not if a lower rank ends with the same error: one copy is enough."""
        time.sleep(0.3)
        mine = read_status(self._folder, self._engine.rank)
        lower = [read_status(self._folder, rank) for rank in range(self._engine.rank)]
        return mine is None or all(
            one is None or (one.kind, one.message) != (mine.kind, mine.message) for one in lower
        )

    def _meet(self) -> list[Peer]:
        """The chief takes the lock for all; every rank learns the others' process."""
        problem = ""
        if self._chief:
            try:
                self._lock.acquire()
                forget_statuses(self._folder, self._engine.ranks)
            except (ConfigError, OSError) as error:
                problem = str(error)
        mine: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid(), "problem": problem}
        if self._engine.ranks > 1:
            mine |= {"code": code_version(), "config": self._config.model_dump(mode="json")}
        everyone = [json.loads(message) for message in self._engine.exchange(json.dumps(mine).encode())]
        refusal = everyone[0]["problem"] or (disagreement(everyone) if len(everyone) > 1 else None)
        if refusal:
            self._lock.release()
            # The chief tells it for all.
            raise ConfigError(refusal) if self._chief else SystemExit(ConfigError.exit_code)
        peers = [Peer(rank, one["host"], one["pid"]) for rank, one in enumerate(everyone)]
        return sorted(watched(peers, self._engine.rank), key=lambda peer: peer.rank)

    def _open_log(self) -> None:
        """A crash in C++ leaves the Python stack there."""
        with suppress(OSError):
            path = self._folder / "logs" / f"rank-{self._engine.rank}.log"
            path.parent.mkdir(exist_ok=True)
            self._log = path.open("a", encoding="utf-8")
            faulthandler.enable(self._log)

    def _write_log(self, error: BaseException) -> None:
        if self._log is not None:
            with suppress(OSError):
                self._log.write("".join(traceback.format_exception(error)))
                self._log.flush()

    def _say(self, error: BaseException) -> None:
        rank, place = self._engine.rank, self._folder / "logs" / f"rank-{self._engine.rank}.log"
        text = one_line(error)
        if not isinstance(error, DistxceptError):
            text = f"{one_line(error, named=True)}; the traceback is in {place}"
        who = "" if isinstance(error, PeerLostError) else f"rank {rank} on {socket.gethostname()}: "
        sys.stderr.flush()
        self._signals.say(f"distxcept train: {who}{text}")

    def _interrupted(self, code: int) -> None:
        if code == StopRequested.exit_code:
            self.health.end("stopped", code)
        else:
            self.health.end("failed", code, InterruptedError("ended by a second signal"))
        self._lock.release()


def watched(peers: Sequence[Peer], rank: int, most: int = MOST_WATCHED) -> list[Peer]:
    """The next `most` peers of `rank`, in a ring, so that everybody is watched by many."""
    ring = [peers[(rank + step) % len(peers)] for step in range(1, len(peers))]
    return ring[:most]


def exit_code_of(error: BaseException) -> int:
    if isinstance(error, DistxceptError):
        return error.exit_code
    if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code:
        return error.code
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _may_be_a_consequence(error: BaseException) -> bool:
    """Horovod's errors, and TensorFlow's around them, come to every rank when one is lost."""
    text = f"{type(error).__name__} {error}"
    return any(word in text for word in ("Horovod", "horovod", "MPI", "NCCL", "nccl"))
