"""`memory.limit` on a host without a GPU: the process is held to it, as a card would hold it.

The kernel limits writable memory that is mapped, not memory that is used (RLIMIT_DATA); TensorFlow maps more than it
uses before its first tensor. So what may still be mapped is what may still be used.
"""

import ctypes
import gc
import resource
import threading
from contextlib import suppress
from pathlib import Path

from distxcept.config.size import show_size
from distxcept.errors import DoesNotFitError

MAPPED_FROM_BYTES = 65536
_M_MMAP_THRESHOLD = -3

STACK_BYTES = 2 * 2**20
"""Of the threads that are started later: a stack counts as it is mapped, and by default 8 MiB are."""
LEAST_BYTES = 64 * 2**20
"""Without so much beside what the process already holds not even its threads can start."""


def process_bytes(field: str) -> int:
    """A field of /proc/self/status: VmRSS is what is resident, VmHWM its peak, VmData what RLIMIT_DATA counts."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def peak_bytes() -> int:
    """The largest resident memory of this process, since its start or since `forget_peak`.

    Not ru_maxrss, where it can be helped: a process inherits that of the one that started it.
    """
    try:
        return process_bytes("VmHWM")
    except LookupError:  # some sandboxes do not tell
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_peak() -> None:
    """The largest resident memory counts from here. OSError where the kernel forbids it, as in some containers."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def limit_process(limit_bytes: int) -> None:
    """From now on an allocation beyond the limit fails. Call it when TensorFlow has started its threads."""
    used, mapped = process_bytes("VmRSS"), process_bytes("VmData")
    if used + LEAST_BYTES > limit_bytes:
        raise DoesNotFitError(
            f"memory.limit is {show_size(limit_bytes)}, but the process holds {show_size(used)} before its first "
            f"update, most of it TensorFlow itself; set memory.limit to {show_size(used + 2 * LEAST_BYTES)} or more"
        )
    _free_means_free()
    threading.stack_size(STACK_BYTES)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (mapped + limit_bytes - used, hard))


def _free_means_free() -> None:
    """Large blocks of the C library go back to the system when they are freed; by default it learns to keep them."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)


def release_memory() -> None:
    """Gives back what a failed step has left behind."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
