"""`distxcept` on a disk that takes seconds for the snapshot of one update: slow_disk.py UPDATE ARGUMENTS…

Open MPI kills the other ranks one to three seconds after the first one has ended with an error.
"""

import sys
import time
from unittest import mock

from distxcept.cli.main import main
from distxcept.training import saving

SECONDS = 6


def run(slow_update: int, arguments: list[str]) -> int:
    real = saving.save_snapshot

    def slow(folder, update, *rest, **options):
        if update == slow_update:
            time.sleep(SECONDS)
        return real(folder, update, *rest, **options)

    with mock.patch.object(saving, "save_snapshot", slow):
        return main(arguments)


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
