"""TensorFlow's chatter at its start, kept out of the user's way."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from distxcept.cluster.tensorflow_import import import_tensorflow


@dataclass(frozen=True)
class Aside:
    stderr_descriptor: int
    """The user's."""

    def tell(self, message: str) -> None:
        """A line for the user, now."""
        os.write(self.stderr_descriptor, f"{message}\n".encode())


@contextmanager
def chatter_aside(verbose: bool, log: Path | None = None) -> Iterator[Aside]:
    """TensorFlow's start; what C++ code writes to stderr meanwhile goes to `log` (or nowhere), unless `verbose`.

    It goes there at once: if C++ code ends the process, its last words are kept. Python's own errors are raised, so
    nothing that the user has to know is hidden.
    """
    with _appending(log) as file:
        sys.stderr.flush()
        stderr = os.dup(2)
        if not verbose:
            os.dup2(file.fileno(), 2)
        try:
            import_tensorflow()
            yield Aside(stderr)
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)


def _appending(log: Path | None) -> IO[bytes]:
    """A log that cannot be written is no reason not to start. Appended: the supervisor's log of a rank is the same file."""
    if log is not None:
        with suppress(OSError):
            return log.open("ab")
    return open(os.devnull, "ab")
