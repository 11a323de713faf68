"""Stop on request: the handler only sets a flag, the next update's reduction tells all ranks."""

import os
import signal
from types import FrameType, TracebackType
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class StopSignals:
    """While entered, the first signal sets `requested`; a second one ends the process at once.

    But for SIGUSR1: a batch system and a launcher may both pass on the same request, and neither means to kill.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        for number in STOPPING:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGUSR1:
            return
        if self.requested:
            os._exit(128 + number)
        self.requested = True
        os.write(2, b"\nstopping after this update; a second signal ends at once\n")
