"""Stop on request: SIGINT, SIGTERM, SIGUSR1. A flag is set, the next update's reduction tells all ranks.

Python runs its handlers on the main thread, between two of its own steps; a reduction that waits for a dead peer has none.
So the wake-up pipe of the signals is read by a thread of its own: a second signal ends the process wherever it hangs.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from distxcept.errors import StopRequested

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
SAME_REQUEST_SECONDS = 0.5
"""A terminal and a launcher may both pass on one Ctrl-C."""


class StopSignals:
    """While entered, on the main thread. Before `defer` there is nothing to save: a signal ends the process with 75."""

    def __init__(self) -> None:
        self.requested = False
        self.on_request: Callable[[], None] = lambda: None
        """Called once, from another thread, when the first signal comes."""
        self.before_exit: Callable[[int], None] = lambda exit_code: None
        self.quiet = False
        """Another rank of the job tells the user."""
        self._deferring = False
        self._first = 0.0
        self._previous: dict[signal.Signals, Any] = {}

    def defer(self) -> None:
        """From now on the first signal only sets `requested`."""
        self._deferring = True

    def __enter__(self) -> "StopSignals":
        self._stderr = os.dup(2)  # the real one, while TensorFlow's chatter at its start is kept aside
        self._reading, self._writing = socket.socketpair()
        self._writing.setblocking(False)
        self._previous_wake_up = signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        for number in STOPPING:
            self._previous[number] = signal.signal(number, self._handle)
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        signal.set_wakeup_fd(self._previous_wake_up)
        self._writing.close()
        self._thread.join()
        self._reading.close()
        os.close(self._stderr)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Only there so that Python wakes the thread."""

    def _listen(self) -> None:
        while numbers := self._reading.recv(64):
            for number in numbers:
                if number in STOPPING:
                    self._arrived(number)

    def _arrived(self, number: int) -> None:
        now = time.monotonic()
        if self.requested:
            # A batch system and a launcher may both pass on SIGUSR1, and neither means to kill.
            if number != signal.SIGUSR1 and now - self._first > SAME_REQUEST_SECONDS:
                self._exit(128 + number)
            return
        if not self._deferring:
            self._tell("stopped before the first update; run the same command again to go on")
            self._exit(StopRequested.exit_code)
        self._first, self.requested = now, True
        self._tell("stopping after this update; a second signal ends at once")
        self.on_request()

    def _exit(self, code: int) -> None:
        self.before_exit(code)
        os._exit(code)

    def _tell(self, line: str) -> None:
        if not self.quiet:
            self.say(f"\n{line}")

    def say(self, line: str) -> None:
        """To the user, whole and unbuffered: the process may end right after."""
        with suppress(OSError):
            os.write(self._stderr, f"{line}\n".encode(errors="backslashreplace"))
