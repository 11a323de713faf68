"""TensorFlow's chatter at its start, kept out of the user's way."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from distxcept.cluster.tensorflow_import import import_tensorflow

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
WARNINGS, ERRORS = "1", "2"
SET_LEVEL = "_ZN4absl12lts_2025081414SetMinLogLevelENS0_18LogSeverityAtLeastE"
"""As TensorFlow 2.21 calls it. Where another one does not know the name, its later warnings are seen as well."""


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

    It goes there at once: if C++ code ends the process, its last words are kept. Python's own errors are raised as ever, so
    nothing that the user has to know is hidden. TensorFlow's warnings are among it where its level is WARNINGS, and end
    with the start: later ones would be written across the training.
    """
    aside = not verbose and os.environ.get(LEVEL) == WARNINGS
    with _appending(log) as file:
        sys.stderr.flush()
        stderr = os.dup(2)
        if not verbose:
            os.dup2(file.fileno(), 2)
        try:
            import_tensorflow()
            if aside:
                _log_from(WARNINGS)
            yield Aside(stderr)
        finally:
            if aside:
                _log_from(ERRORS)
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)


def _log_from(level: str) -> None:
    """The least level that TensorFlow logs, which it reads from its variable only once."""
    if "tensorflow" in sys.modules:
        framework = Path(str(sys.modules["tensorflow"].__file__)).with_name("libtensorflow_framework.so.2")
        with suppress(OSError, AttributeError):
            ctypes.CDLL(str(framework))[SET_LEVEL](int(level))


def _appending(log: Path | None) -> IO[bytes]:
    """A log that cannot be written is no reason not to start. Appended: the supervisor's log of a rank is the same file."""
    if log is not None:
        with suppress(OSError):
            return log.open("ab")
    return open(os.devnull, "ab")
