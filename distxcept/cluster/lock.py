"""One job at a time in a run folder: the chief of the job holds RUN/lock.json for all its ranks.

The kernel's lock on the file goes with its process, so on one host nothing stale can stay. Between hosts a file system
may keep such locks apart, or have none; then the file's text tells who holds it, and the holder's signs of life
(status.py) whether it still does. No clocks are compared for that, except to pass over a sign that is long past.
"""

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from distxcept.cluster.status import read_status
from distxcept.errors import ConfigError

NAME = "lock.json"
LONG_PAST = 10
"""Times the timeout: a sign of life that old was not written by a process that lives, whatever the clocks say."""
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True)
class Holder:
    host: str
    pid: int
    started: float
    """When its process began, seconds since 1970: tells it from a later process with the same pid."""

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started))
        return f"process {self.pid} on {self.host}, begun {since}"


class RunLock:
    """Held from `acquire` to `release`, or to the end of the process."""

    def __init__(self, run_folder: Path, peer_timeout: float, sleep: Callable[[float], None] = time.sleep):
        self._folder, self._timeout, self._sleep = run_folder, peer_timeout, sleep
        self._path = run_folder / NAME
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """ConfigError if another process uses the run folder."""
        while self._descriptor is None:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                self._descriptor = self._take(descriptor)
            finally:
                if self._descriptor is None:
                    os.close(descriptor)

    def release(self) -> None:
        if self._descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def _take(self, descriptor: int) -> int | None:
        """The descriptor if the lock is ours now, None to try again."""
        locked = _lock(descriptor)
        holder = _read(descriptor)
        if holder is not None and self._lives(holder, locked):
            raise ConfigError(
                f"{self._folder} is in use by {holder}; wait for it, stop it, or choose another run.name"
            )
        if locked is False:
            # A child that outlived its parent may still have the file open: leave it that one, and make another.
            if holder is None:
                self._sleep(0.1)  # it is about to write its name
            else:
                self._path.unlink(missing_ok=True)
            return None
        try:
            same = os.fstat(descriptor).st_ino == os.stat(self._path).st_ino
        except FileNotFoundError:
            same = False
        if not same:  # it was replaced between opening and locking
            return None
        _write(descriptor)
        return descriptor

    def _lives(self, holder: Holder, locked: bool | None) -> bool:
        if holder.host == socket.gethostname():
            # With the kernel's lock in our hands, a holder on this host cannot be alive.
            return locked is not True and _is_running(holder)
        return self._gives_signs_of_life(holder)

    def _gives_signs_of_life(self, holder: Holder) -> bool:
        first = last = read_status(self._folder, 0)
        waited = 0.0
        while last is not None and (last.host, last.pid) == (holder.host, holder.pid) and not last.ended:
            if first is not None and last.time != first.time:
                return True
            if waited > self._timeout or abs(time.time() - last.time) > LONG_PAST * self._timeout:
                return False
            self._sleep(0.5)
            waited += 0.5
            last = read_status(self._folder, 0)
        return False


def _lock(descriptor: int) -> bool | None:
    """True if locked, False if somebody else has it, None if this file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


def _is_running(holder: Holder) -> bool:
    try:
        process = psutil.Process(holder.pid)
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - holder.started) < 2
    except psutil.Error:
        return False


def _read(descriptor: int) -> Holder | None:
    try:
        content = json.loads(os.pread(descriptor, 10_000, 0))
        return Holder(str(content["host"]), int(content["pid"]), float(content["started"]))
    except (ValueError, KeyError, TypeError):
        return None


def _write(descriptor: int) -> None:
    mine = Holder(socket.gethostname(), os.getpid(), psutil.Process().create_time())
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, (json.dumps(asdict(mine)) + "\n").encode(), 0)
