"""`distxcept` on a disk that takes seconds for the snapshot of one update: slow_disk.py UPDATE ARGUMENTS…

Open MPI kills the other ranks one to three seconds after the first one has ended with an error.
"""

import sys
import time
from unittest import mock

from distxcept.checkpoint.store import Store
from distxcept.cli.main import main

SECONDS = 6


def run(slow_update: int, arguments: list[str]) -> int:
    real = Store.save

    def slow(store, update, *rest, **options):
        if update == slow_update:
            time.sleep(SECONDS)
        return real(store, update, *rest, **options)

    with mock.patch.object(Store, "save", slow):
        return main(arguments)


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
