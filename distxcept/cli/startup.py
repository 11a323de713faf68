"""TensorFlow's chatter at its start, kept out of the user's way but not lost."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from distxcept.cluster.tensorflow_import import import_tensorflow


@dataclass(frozen=True)
class Aside:
    chatter: IO[bytes]
    """What was written to stderr meanwhile."""
    stderr_descriptor: int
    """The user's."""

    def tell(self, message: str) -> None:
        """A line for the user, now."""
        os.write(self.stderr_descriptor, f"{message}\n".encode())


@contextmanager
def chatter_aside(verbose: bool) -> Iterator[Aside]:
    """TensorFlow's start; what C++ code writes to stderr meanwhile goes to a file that is handed out, unless `verbose`.

    Python's own errors are raised as ever, so nothing that the user has to know is hidden.
    """
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        stderr = os.dup(2)
        if not verbose:
            os.dup2(file.fileno(), 2)
        try:
            import_tensorflow()
            yield Aside(file, stderr)
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
