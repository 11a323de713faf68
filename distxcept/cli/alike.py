"""Errors to which every rank of a job comes alike, such as a mistake in the config: one of them tells it for all."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from distxcept.cluster import detect
from distxcept.errors import ConfigError, DistxceptError

WAIT_SECONDS = 5.0


@contextmanager
def alike_on_all_ranks() -> Iterator[None]:
    """What fails in here fails on every rank."""
    try:
        yield
    except DistxceptError as error:
        error.alike = True
        raise


def is_teller(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this rank tells it: the first one, at once.

    The others wait, because a launcher ends the whole job with the first rank that fails. Who is still there afterwards may
    be on a host where the config is another one, so the first rank of each host tells it, too.
    """
    try:
        placement = detect(environ)
    except ConfigError:  # nobody knows who is the first
        return True
    if placement.rank:
        with suppress(KeyboardInterrupt):
            time.sleep(WAIT_SECONDS)
    return placement.local_rank == 0
