"""Reading again after errors that pass by themselves, and the words for those that do not."""

import errno
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from distxcept.data.sources.base import BadSample, Sample
from distxcept.errors import one_line

# What network file systems and worn disks report and take back a moment later.
_TRANSIENT = frozenset(
    {
        *(errno.EIO, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ESTALE, errno.ENFILE, errno.EMFILE),
        *(errno.ETIMEDOUT, errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN),
        *(errno.EHOSTUNREACH, errno.ECONNABORTED, errno.ECONNRESET, errno.ECONNREFUSED, errno.ESHUTDOWN),
        *(errno.EREMOTEIO, errno.ENOLINK),
    }
)
RETRY_SECONDS = (0.1, 0.5, 2.0, 5.0)


T = TypeVar("T")


def read_with_retries(
    read: Callable[[], Sample],
    pauses: Sequence[float] = RETRY_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> Sample:
    """Reads again after errors that pass by themselves, with longer and longer pauses."""
    for pause in pauses:
        try:
            return read()
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise
        sleep(pause)
    return read()


def retry_without_memory(
    work: Callable[[], T],
    pauses: Sequence[float] = RETRY_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Tries again: what a step of the training takes of a scarce memory it gives back when it ends."""
    for pause in pauses:
        try:
            return work()
        except Exception as error:
            if not lacked_memory(error):
                raise
        sleep(pause)
    return work()


def lacked_memory(error: Exception) -> bool:
    """Whether it says nothing about the sample; TensorFlow's own error is known by its name, it is not needed here."""
    return isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError"


def reason_of(error: Exception) -> str:
    """One line for bad_images.jsonl."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    return one_line(error, named=not isinstance(error, BadSample))
