"""Ranks that come to grief under a real launcher: `rank_victim.py RUN_FOLDER STEP…`, one step for each attempt.

    0, 3, 6 …   every rank ends with this exit code
    kill:K      rank K is killed while the others wait for each other
    fail:K:3    rank K fails with exit code 3, the others wait
    listens     every rank waits for SIGUSR1, saves, and ends with 75 when all have: a launcher kills the others of a rank
                that ended
The last step is repeated. Rank K leaves RUN_FOLDER/attempt-N-rank-K with its pid; the attempt begins when all have.
"""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from distxcept.cli.rank import enter
from distxcept.cluster import detect
from distxcept.cluster.status import failed, own_status, write_status
from distxcept.errors import DataError

folder, *steps = sys.argv[1:]
if steps[-1] == "resume":
    steps.pop()
run_folder = Path(folder)
rank, size = enter(run_folder), detect(os.environ).size
number = 0
while (run_folder / f"attempt-{number}-rank-{rank}").exists():
    number += 1
step, *details = steps[min(number, len(steps) - 1)].split(":")
status = replace(own_status(rank, size), state="running")
write_status(run_folder, status)
print(f"out {rank} of {size}", flush=True)


def save(*_: object) -> None:
    (run_folder / f"saved-{rank}").touch()
    while len(list(run_folder.glob("saved-*"))) < size:
        time.sleep(0.01)
    os._exit(75)


signal.signal(signal.SIGUSR1, save)
(run_folder / f"attempt-{number}-rank-{rank}").write_text(str(os.getpid()))
while len(list(run_folder.glob(f"attempt-{number}-rank-*"))) < size:
    time.sleep(0.01)
if step == "kill" and rank == int(details[0]):
    os.kill(os.getpid(), signal.SIGKILL)
elif step == "fail" and rank == int(details[0]):
    write_status(run_folder, failed(status, DataError("no pictures"), int(details[1])))
    sys.exit(int(details[1]))
elif step in ("kill", "fail", "listens"):
    while True:
        time.sleep(0.1)
else:
    sys.exit(int(step))
