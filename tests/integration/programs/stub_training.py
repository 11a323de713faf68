"""`stub_training.py RUN_FOLDER [key=value …]`: counts updates as a training would, and saves on request and at its end.

Rank 0 writes each update into RUN_FOLDER/updates.txt as `update restart_count ranks`. Nothing is saved in between, so an
update that stands there twice was lost. `run.updates` says how many there are; with `run.seed=1` the fourth waits for
RUN_FOLDER/go.
"""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from distxcept.cli.rank import enter
from distxcept.cluster import detect
from distxcept.cluster.status import own_status, write_status

UPDATE_SECONDS = 0.02

folder, *overrides = sys.argv[1:]
values = dict(text.split("=", 1) for text in overrides)
run_folder = Path(folder)
(run_folder / "arguments.json").write_text(json.dumps(sys.argv[1:]))
rank, size = enter(run_folder), detect(os.environ).size
status = own_status(rank, size)
write_status(run_folder, status)
checkpoints = run_folder / "checkpoints"
done = max((int(path.name.split("-")[1]) for path in checkpoints.glob("update-*")), default=0)
asked: list[int] = []


def save() -> None:
    if rank == 0:
        (checkpoints / f"update-{done:08d}").mkdir(parents=True, exist_ok=True)


def end(state: str, code: int) -> None:
    write_status(run_folder, replace(status, state=state, update=done, exit_code=code, time=time.time()))
    sys.exit(code)


for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda number, frame: asked.append(number))
write_status(run_folder, replace(status, state="running", update=done))
while done < int(values["run.updates"]):
    if asked:
        save()
        end("stopped", 75)
    while values.get("run.seed") == "1" and done >= 3 and not (run_folder / "go").exists() and not asked:
        time.sleep(0.01)
    time.sleep(UPDATE_SECONDS)
    done += 1
    if rank == 0:
        with (run_folder / "updates.txt").open("a") as file:
            file.write(f"{done} {os.environ.get('SLURM_RESTART_COUNT', '0')} {size}\n")
save()
end("done", 0)
