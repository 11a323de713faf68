"""Processes that do not outlive the one that started them (Linux)."""

import contextlib
import ctypes
import os
import signal

import psutil

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent_pid: int) -> None:
    """In a child, before it executes anything: SIGKILL when its parent is gone, however that ended.

    The setting survives an exec. A parent that was gone before it was made can no longer trigger it, hence the check.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(128 + signal.SIGKILL)


def adopt_orphans() -> None:
    """From now on what a dead child leaves running becomes a child of this process, and `end_children` finds it."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children(patience_seconds: float = 10.0) -> int:
    """Kills every descendant of this process; returns how many there were."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(children, timeout=patience_seconds)
    return len(children)
