"""A stand-in for a training that comes to grief: `victim.py RUN_FOLDER STEP…`, one step for each attempt.

A step is an exit code, a signal's name, or one of the words below; the last one is repeated. Every attempt leaves a line in
RUN_FOLDER/attempts with its pid and arguments.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from distxcept.cluster.status import own_status, write_status
from distxcept.memory.memory_plan import MemoryPlan, read_plan_in_use, write_memory_plan

folder, *steps = sys.argv[1:]
resume = steps[-1] == "resume"
steps = steps[:-1] if resume else steps
run_folder = Path(folder)
attempts = run_folder / "attempts"
number = len(attempts.read_text().splitlines()) if attempts.exists() else 0
step = steps[min(number, len(steps) - 1)]


def announce(*pids: int) -> None:
    with attempts.open("a") as file:
        file.write(json.dumps({"pids": [os.getpid(), *pids], "resume": resume}) + "\n")


def write_plan() -> None:
    """As the training does: what the supervisor asks for, or else the largest."""
    limit = run_folder / "memory_plan.json"
    asked = {"micro": 16, "remat": False}
    if limit.exists() and step != "stubborn":
        asked = json.loads(limit.read_text())
    plan = {"global_batch": 16, "virtual_batch": 4, "micro_batch": asked["micro"], "remat": asked["remat"]}
    (run_folder / "plan.json").write_text(json.dumps(plan | {"shares": [1]}))


write_status(run_folder, own_status(0, 1))
write_plan()
print(f"out {step}", flush=True)
print(f"err {step}", file=sys.stderr, flush=True)
if step == "snapshot":
    (run_folder / "checkpoints" / "update-00000001").mkdir(parents=True)
    announce()
    os.kill(os.getpid(), signal.SIGKILL)
elif step == "late_news":
    (run_folder / "checkpoints" / "update-00000001").mkdir(parents=True, exist_ok=True)
    write_status(run_folder, replace(own_status(0, 1), update=1 if resume else 0))
    announce()
    os.kill(os.getpid(), signal.SIGSEGV)
elif step in ("bad_alloc", "stubborn"):
    announce()
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()
elif step == "leaves_plan":
    announce()
    used = read_plan_in_use(run_folder).plan
    write_memory_plan(run_folder, MemoryPlan(used.micro // 2, False), used, "as the training does")
    print("ResourceExhaustedError: OOM when allocating tensor", file=sys.stderr, flush=True)
    sys.exit(6)
elif step in ("listens", "deaf"):
    signal.signal(signal.SIGUSR1, (lambda *_: os._exit(75)) if step == "listens" else signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # only SIGUSR1 makes it save
    helper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    announce(helper.pid)
    while True:
        signal.pause()
elif step.startswith("SIG"):
    announce()
    os.kill(os.getpid(), signal.Signals[step])
else:
    announce()
    sys.exit(int(step))
