"""Processes that do not outlive the one that started them (Linux)."""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping

import psutil

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent_pid: int) -> None:
    """In a child, as early as it can: SIGKILL when its parent is gone, however that ended.

    The setting survives an exec. A parent that was gone before it was made can no longer trigger it, hence the check.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(128 + signal.SIGKILL)


LAUNCHER_VARIABLE = "DISTXCEPT_LAUNCHER"
COMMAND_VARIABLE = "DISTXCEPT_COMMAND"


def launcher_variables() -> dict[str, str]:
    """What this process tells the ranks that it launches, of itself. The command gets to those on its own host."""
    return {
        LAUNCHER_VARIABLE: launcher_mark(),
        COMMAND_VARIABLE: json.dumps(["distxcept", *sys.argv[1:]]),
    }


def typed_command(environ: Mapping[str, str]) -> list[str]:
    """What the user typed: the launcher's command, where it has told it, since that of a rank is the launcher's work."""
    told = environ.get(COMMAND_VARIABLE)
    return json.loads(told) if told else sys.argv


def launcher_mark() -> str:
    """This process as its ranks can find it again: by host, number and time of start."""
    own = psutil.Process()
    return f"{socket.gethostname()} {own.pid} {own.create_time()}"


def die_with_launcher(environ: Mapping[str, str]) -> bool:
    """In a rank on the launcher's host: SIGKILL when the launcher is gone, whatever stands between the two.

    srun's tasks are no children of srun, and horovodrun puts a shell before mpirun. False where the launcher cannot be
    seen, as from another host or out of a container; those ranks end when the launcher's MPI loses a local one.
    """
    try:
        host, pid, created = environ.get(LAUNCHER_VARIABLE, "").split(" ")
        if host != socket.gethostname() or psutil.Process(int(pid)).create_time() != float(created):
            return False
        watched = os.pidfd_open(int(pid))
    except (ValueError, OSError, psutil.Error):
        return False
    threading.Thread(target=_die_after, args=(watched,), name="launcher-watch", daemon=True).start()
    return True


def _die_after(watched: int) -> None:
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    while not poll.poll():
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """From now on what a dead child leaves running becomes a child of this process, and `end_children` finds it."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children(grace_seconds: float = 2.0, patience_seconds: float = 10.0) -> int:
    """Kills every descendant of this process that does not end by itself; returns how many those were.

    A launcher that ends its ranks does not always wait for them.
    """
    _, left = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=grace_seconds)
    for child in left:
        with contextlib.suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(left, timeout=patience_seconds)
    return len(left)
