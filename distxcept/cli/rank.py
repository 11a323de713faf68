"""`python -m distxcept.cli.rank RUN_FOLDER -- ARGUMENTS…`: `distxcept ARGUMENTS…` as a rank of a launched job.

Beyond the command itself: the rank dies with its launcher, it writes into RUN/logs/rank-K.log (rank 0 onto the launcher's
terminal, which is logged too), and a request to stop that comes before the training listens ends it with 75.
"""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from distxcept.cli.main import entry
from distxcept.cluster import detect
from distxcept.cluster.status import read_status
from distxcept.cluster.tether import die_with_launcher, die_with_parent
from distxcept.errors import DistxceptError, StopRequested
from distxcept.launch.logs import log_path


def main(arguments: list[str]) -> None:
    folder, separator, *command = arguments
    assert separator == "--"
    try:
        enter(Path(folder))
    except DistxceptError as error:
        print(f"distxcept launch: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    sys.argv = ["distxcept", *command]
    entry()


def enter(run_folder: Path) -> int:
    """Makes this process a rank of a launched job; returns which."""
    die_with_parent(os.getppid())
    die_with_launcher(os.environ)
    rank = detect(os.environ).rank
    listen_before_training(run_folder, rank)
    if rank:
        write_to(log_path(run_folder, rank))
    return rank


def write_to(log: Path) -> None:
    """From here on stdout and stderr of this process, C++ included, are the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno())
    os.close(file)
    print(f"--- {time.strftime('%Y-%m-%dT%H:%M:%S%z')} {os.uname().nodename} pid {os.getpid()}", flush=True)


def listen_before_training(run_folder: Path, rank: int) -> None:
    """Until the training takes the signals over, nothing is under way that would have to be saved."""

    def stop(number: int, frame: FrameType | None) -> None:
        status = read_status(run_folder, rank)
        if status is None or status.pid != os.getpid() or not status.ended:
            os._exit(StopRequested.exit_code)

    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


if __name__ == "__main__":
    main(sys.argv[1:])
