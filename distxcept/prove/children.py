"""Child processes of `distxcept prove`. A process fixes its devices once, so every setting of devices is a child.

At most two children run at once. Ctrl-C and the end of this process end all of them.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from distxcept.memory.probe import child_environ

AT_ONCE = 2
LAST_LINES = 3


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: str
    log: Path
    """What the child printed on stderr."""
    seconds: float
    timed_out: bool = False

    @property
    def why(self) -> str:
        """Why it did not succeed, in one line; empty after success."""
        if self.code == 0:
            return ""
        if self.timed_out:
            return f"no answer within {self.seconds:.0f} s"
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        how = f"exit code {self.code}"
        if self.code < 0:
            with suppress(ValueError):
                how = signal.Signals(-self.code).name
        return f"{how}: {' / '.join(lines[-LAST_LINES:])[-600:]}" if lines else how


class Stopped(Exception):
    """The children were ended on request."""


class Children:
    def __init__(self, logs: Path, *, at_once: int = AT_ONCE):
        self._logs = logs
        self._slots = threading.BoundedSemaphore(at_once)
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(
        self,
        name: str,
        command: Sequence[str],
        *,
        seconds: float,
        environ: Mapping[str, str] | None = None,
    ) -> Ended:
        """Waits for a free slot, then for the end of the command. Raises Stopped after `stop`."""
        log = self._logs / f"{name}.log"
        with self._slots, log.open("w") as errors:
            began = time.monotonic()
            process = self._start(command, {**child_environ(os.environ), **(environ or {})}, errors)
            timed_out = False
            try:
                stdout, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                timed_out = True
                _kill_tree(process.pid)
                stdout, _ = process.communicate()
            finally:
                with self._lock:
                    self._running.discard(process)
        if self._stopped:
            raise Stopped
        return Ended(process.returncode, stdout, log, time.monotonic() - began, timed_out)

    def _start(
        self, command: Sequence[str], environ: Mapping[str, str], errors: object
    ) -> subprocess.Popen[str]:
        with self._lock:
            if self._stopped:
                raise Stopped
            tether = [sys.executable, "-m", "distxcept.prove.tethered", str(os.getpid())]
            process = subprocess.Popen(
                [*tether, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,  # type: ignore[call-overload]
                env=dict(environ),
                text=True,
                start_new_session=True,  # Ctrl-C reaches this process alone
            )
            self._running.add(process)
            return process

    def stop(self) -> None:
        """Ends all children; later calls of `run` raise Stopped."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            _kill_tree(process.pid)


def _kill_tree(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in [*parent.children(recursive=True), parent]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def python(module: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]


def distxcept(*arguments: object) -> list[str]:
    """The command line, as a user starts it."""
    return python("distxcept.cli.main", *arguments)
