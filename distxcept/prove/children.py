"""Child processes of `distxcept prove`. A process fixes its devices once, so every setting of devices is a child.

At most two children run at once, and at most one of them uses GPUs: two would share the memory of the same cards. A child
ends at its own limit or at the deadline of the whole proof. Ctrl-C and the end of this process end all children.
"""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from distxcept.memory.probe import child_environ

AT_ONCE = 2
LAST_LINES = 3
NOT_STARTED = 124
"""Exit code of a child that was not started; `timeout` has it too."""
LEAST_SECONDS = 5.0
"""With less time left no child is started: the import of TensorFlow takes longer."""
HIDDEN = ("", "-1")
"""Values of CUDA_VISIBLE_DEVICES that hide every card."""
TIME_IS_UP = "no time was left for it; --minutes gives prove more"


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: str
    log: Path
    """What the child printed on stderr."""
    seconds: float
    timed_out: bool = False
    too_late: bool = False
    """The deadline of the whole proof ended it, or came before it was started."""

    @property
    def unfinished(self) -> bool:
        """A limit of time ended it, so it shows nothing."""
        return self.code != 0 and (self.timed_out or self.too_late)

    @property
    def why(self) -> str:
        """Why it did not succeed, in one line; empty after success."""
        if self.code == 0:
            return ""
        if self.too_late:
            return TIME_IS_UP
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
    def __init__(
        self, logs: Path, *, on_gpu: bool = False, at_once: int = AT_ONCE, deadline: float = math.inf
    ):
        """`on_gpu`: children compute on GPUs unless their environment hides these. `deadline`: of time.monotonic()."""
        self._logs, self._on_gpu, self._deadline = logs, on_gpu, deadline
        self._slots = threading.BoundedSemaphore(at_once)
        self._cards = threading.BoundedSemaphore(1)
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    @property
    def seconds_left(self) -> float:
        """Until the deadline of the whole proof."""
        return max(0.0, self._deadline - time.monotonic())

    def run(
        self,
        name: str,
        command: Sequence[str],
        *,
        seconds: float,
        environ: Mapping[str, str] | None = None,
        leave_seconds: float = 0.0,
    ) -> Ended:
        """Waits for a free place, then for the end of the command. Raises Stopped after `stop`.

        Optional work ends `leave_seconds` before the deadline, so that the rest still fits.
        """
        log, more = self._logs / f"{name}.log", environ or {}
        uses_cards = self._on_gpu and more.get("CUDA_VISIBLE_DEVICES", "0") not in HIDDEN
        # Who waits for the cards keeps no place from those that do without.
        with self._cards if uses_cards else nullcontext(), self._slots, log.open("w") as errors:
            left = self.seconds_left - leave_seconds
            if left < LEAST_SECONDS and not self._stopped:
                return Ended(NOT_STARTED, "", log, 0.0, too_late=True)
            began = time.monotonic()
            process = self._start(command, {**child_environ(os.environ), **more}, errors)
            timed_out = False
            try:
                stdout, _ = process.communicate(timeout=min(seconds, left))
            except subprocess.TimeoutExpired:
                timed_out = True
                _kill_tree(process.pid)
                stdout, _ = process.communicate()
            finally:
                with self._lock:
                    self._running.discard(process)
        if self._stopped:
            raise Stopped
        too_late = timed_out and left < seconds
        return Ended(process.returncode, stdout, log, time.monotonic() - began, timed_out, too_late)

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
