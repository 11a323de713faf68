"""A rank that trains nothing, but lives and dies like one: mock_rank.py RUN_FOLDER RANK RANKS TIMEOUT FATE

It meets the others, does a few updates, and then waits for them in a call that Python cannot interrupt, as in a
reduction. FATE is what happens to it there: wait, exit, raise, refuse, sysexit, segfault, abort, kill, stop, agree.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from distxcept.cli.attendance import Attendance
from distxcept.cluster.status import read_status
from distxcept.config.schema import Config
from distxcept.errors import DataError, DistxceptError, DivergedError
from distxcept.training.signals import StopSignals


class FileEngine:
    """Messages through files in the run folder."""

    def __init__(self, folder: Path, rank: int, ranks: int):
        self.folder, self.rank, self.ranks = folder, rank, ranks
        self.round = 0

    def exchange(self, message: bytes) -> list[bytes]:
        self.round += 1
        scratch = self.folder / f"scratch-{self.rank}"
        scratch.write_bytes(message)
        scratch.rename(self.folder / f"message-{self.round}-{self.rank}")
        paths = [self.folder / f"message-{self.round}-{rank}" for rank in range(self.ranks)]
        while not all(path.exists() for path in paths):
            time.sleep(0.01)
        return [path.read_bytes() for path in paths]


def hang() -> None:
    """Like a reduction: for ever, not ended by a signal, no step of Python's for the main thread, but others may run."""
    mutex = ctypes.create_string_buffer(128)  # all zeros: PTHREAD_MUTEX_INITIALIZER
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)


def meet(fate: str) -> None:
    if fate == "raise":
        raise ValueError("the planted error")
    if fate == "refuse":
        raise DataError("this rank cannot read its images")
    if fate == "agree":
        raise DivergedError("all ranks see the same infinity")
    if fate == "sysexit":
        sys.exit(3)
    if fate == "segfault":
        ctypes.string_at(0)
    if fate == "abort":
        os.abort()
    if fate in ("kill", "stop"):
        os.kill(os.getpid(), signal.SIGKILL if fate == "kill" else signal.SIGSTOP)
    if fate == "lost":
        raise RuntimeError("HorovodInternalError: Horovod has been shut down")
    hang()


def main(folder: Path, rank: int, ranks: int, timeout: float, fate: str) -> int:
    engine = FileEngine(folder, rank, ranks)
    data = {"train": {"kind": "synthetic", "samples": 10, "classes": 2}}
    config = Config.model_validate({"data": data, "engine": {"peer_timeout": timeout}})
    with StopSignals() as signals, Attendance(engine, folder, config, signals) as attendance:
        signals.defer()
        for update in range(1, 4):
            with attendance.health.updating():
                engine.exchange(b"gradients")
            attendance.health.updated(update)
        while read_status(folder, rank).update < 3:
            time.sleep(0.01)
        (folder / f"waiting-{rank}").touch()
        if fate == "done":
            return 0
        with attendance.health.updating():
            meet(fate)
    return attendance.exit_code


if __name__ == "__main__":
    folder, rank, ranks, timeout, fate = sys.argv[1:]
    try:
        code = main(Path(folder), int(rank), int(ranks), float(timeout), fate)
    except DistxceptError as error:
        print(f"distxcept train: {error}", file=sys.stderr)
        code = error.exit_code
    sys.exit(code)
