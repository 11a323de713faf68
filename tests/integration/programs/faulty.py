"""`distxcept` with a fault:

    faulty.py KIND RANK UPDATE ARGUMENTS…

The fault comes to one rank in the update of that number; a line with the time goes to RUN/fault before it. KIND is raise,
sysexit, segfault, abort, stop, or kill: the last comes from outside, at any moment of the update, the reduction included.
"""

import ctypes
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from unittest import mock

from distxcept.cli.main import main
from distxcept.training import loop


def note(folder: Path) -> None:
    (folder / "fault").write_text(str(time.time()))


def kill_soon(folder: Path, within_seconds: float) -> None:
    def kill() -> None:
        time.sleep(random.random() * within_seconds)
        note(folder)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()


def happen(kind: str, folder: Path, update_seconds: float) -> None:
    if kind == "kill":
        return kill_soon(folder, update_seconds)
    note(folder)
    if kind == "raise":
        raise ValueError("the planted error")
    if kind == "sysexit":
        sys.exit(3)
    if kind == "segfault":
        ctypes.string_at(0)
    if kind == "abort":
        os.abort()
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)


def faulty(kind: str, rank: int, update: int) -> mock._patch:
    real = loop.Loop.run_update
    began = []

    def run_update(self, *arguments):
        began.append(time.monotonic())
        if self.engine.rank == rank and self.started == update:
            happen(kind, self.run_folder, began[-1] - began[-2])
        return real(self, *arguments)

    return mock.patch.object(loop.Loop, "run_update", run_update)


if __name__ == "__main__":
    kind, rank, update, *arguments = sys.argv[1:]
    with faulty(kind, int(rank), int(update)):
        sys.exit(main(arguments))
