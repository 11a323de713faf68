"""Threads that work off tasks in order, as many at once as the measurement asks for."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

Task = Callable[[], None]

MOST_PER_CORE = 8
"""Threads for each core at most, however long they wait for the storage."""


def threads_wanted(cores: int, waiting_share: float) -> int:
    """Threads that keep `cores` busy when each spends this share of its time waiting for the storage."""
    if waiting_share >= 1 - 1 / MOST_PER_CORE:
        return cores * MOST_PER_CORE
    return max(cores, round(cores / (1 - max(0.0, waiting_share))))


class Workers:
    """Runs tasks first in, first out. Tasks do not raise; who wants to know keeps count inside of the task."""

    def __init__(self, threads: int, most: int):
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="distxcept-data")
        self._waiting: deque[Task] = deque()
        self._running = 0
        self._threads = threads
        self._lock = threading.Lock()

    @property
    def threads(self) -> int:
        return self._threads

    def use(self, threads: int) -> None:
        """Sets how many tasks run at once from now on."""
        self._threads = threads
        self._pump()

    def submit(self, task: Task) -> None:
        with self._lock:
            self._waiting.append(task)
        self._pump()

    def close(self) -> None:
        """Drops what has not begun and waits for the rest. May be called twice."""
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _pump(self) -> None:
        with self._lock:
            while self._waiting and self._running < self._threads:
                self._running += 1
                self._pool.submit(self._run, self._waiting.popleft())

    def _run(self, task: Task) -> None:
        try:
            task()
        finally:
            with self._lock:
                self._running -= 1
            self._pump()
