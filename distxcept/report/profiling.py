"""`--profile updates=10-15`: a trace of these updates on rank 0, for TensorBoard's profiler."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from distxcept.training.events import Observer


class Profile(Observer):
    """Starts and stops the profiler between updates. As a context manager it never leaves it running."""

    def __init__(
        self,
        updates: tuple[int, int],
        folder: Path,
        tell: Callable[[str], None] = lambda message: None,
        profiler: Any = None,
    ):
        """`updates`: the first and the last, counted from 1 over the whole run."""
        (self._first, self._last), self._folder, self._tell, self._given = updates, folder, tell, profiler
        self._running = self._done = False

    @property
    def _profiler(self) -> Any:
        if self._given is None:
            import tensorflow as tf

            self._given = tf.profiler.experimental
        return self._given

    def started(self, start: dict[str, Any]) -> None:
        if start["update"] >= self._last:
            self._done = True
            self._tell(f"no profile: update {self._last} is done already")
        else:
            self._look(start["update"])

    def updated(self, update: int, loss: float, accuracy: float) -> None:
        self._look(update)

    def _look(self, done: int) -> None:
        """`done` updates are done, the next one is `done` + 1."""
        if self._running and done >= self._last:
            self._stop()
        elif not self._running and not self._done and done + 1 >= self._first:
            try:
                self._profiler.start(str(self._folder))
            except Exception as error:  # another profiler runs in this process, or the disk is full
                self._done = True
                self._tell(f"no profile: {' '.join(str(error).split())[:300]}")
            else:
                self._running = True

    def _stop(self) -> None:
        self._running, self._done = False, True
        try:
            self._profiler.stop()
        except Exception as error:
            self._tell(f"no profile: {' '.join(str(error).split())[:300]}")
        else:
            self._tell(
                f"profile of updates {self._first} to {self._last} in {self._folder}; to look at it: "
                f"pip install tensorboard tensorboard-plugin-profile; tensorboard --logdir {self._folder}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._running:
            self._stop()
