"""`distxcept …` in which a rank really runs out of memory: `starved.py '{"3": 1}' train CONFIG …`.

Argument 1 maps the number of an update to a rank. Just before that rank computes that update for the first time its
process may hold hardly more memory than it does; afterwards the limit is lifted.
"""

import json
import os
import resource
import sys
from pathlib import Path

from distxcept.cli.main import main
from distxcept.cluster import detect

SPARE_BYTES = 8 * 2**20


def data_bytes() -> int:
    """What RLIMIT_DATA counts."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise LookupError("VmData")


def starve(updates: dict[int, int]) -> None:
    from distxcept.training.update import Update

    real, rank = Update.__call__, detect(os.environ).rank
    seen: set[int] = set()

    def call(self, batches, plan, *, key, **arguments):
        first_time = key not in seen
        seen.add(key)
        if not first_time or updates.get(len(seen)) != rank:
            return real(self, batches, plan, key=key, **arguments)
        step = self._replica_step

        def starved_step(*values, **form):
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + SPARE_BYTES, hard))
            try:
                return step(*values, **form)
            finally:
                resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, hard))

        self._replica_step = starved_step
        try:
            return real(self, batches, plan, key=key, **arguments)
        finally:
            self._replica_step = step

    Update.__call__ = call


if __name__ == "__main__":
    starve({int(update): rank for update, rank in json.loads(sys.argv[1]).items()})
    sys.exit(main(sys.argv[2:]))
