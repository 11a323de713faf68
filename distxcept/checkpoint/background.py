"""One job at a time in a thread beside the training: the next one waits for the last."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Runs jobs; what became of them is told to the caller's thread, when it asks."""

    def __init__(self, name: str):
        self._name = name
        self._thread: threading.Thread | None = None
        self._finished: list[T | Exception] = []

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[], T]) -> None:
        """Waits for the job before, then starts this one. Python does not end before it is done."""
        self.wait()
        self._thread = threading.Thread(target=self._run, args=(job,), name=self._name)
        self._thread.start()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Until nothing is under way; False if that takes longer."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        return not self.busy

    def take(self) -> list[T | Exception]:
        """Results and errors of jobs that have ended since the last call, in their order."""
        taken = []
        while self._finished:
            taken.append(self._finished.pop(0))
        return taken

    def _run(self, job: Callable[[], T]) -> None:
        try:
            self._finished.append(job())
        except Exception as error:  # the training thread decides what it means
            self._finished.append(error)
