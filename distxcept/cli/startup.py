"""TensorFlow's chatter at its start, kept out of the user's way but not lost."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO


@contextmanager
def chatter_aside(verbose: bool) -> Iterator[IO[bytes]]:
    """While entered, what C++ code writes to stderr goes to the file that is handed out; with `verbose` it stays.

    Python's own errors are raised as ever, so nothing that the user has to know is hidden.
    """
    with tempfile.TemporaryFile() as aside:
        if verbose:
            yield aside
            return
        sys.stderr.flush()
        stderr = os.dup(2)
        os.dup2(aside.fileno(), 2)
        try:
            yield aside
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
