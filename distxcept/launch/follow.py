"""Waiting for a batch job, and showing what it writes meanwhile."""

import contextlib
import subprocess
import time
from pathlib import Path
from typing import IO

POLL_SECONDS = 1.0
QUIET_ENDS = (
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
)


def follow_job(job: str, output: Path | None, terminal: IO[bytes]) -> tuple[str, int]:
    """(state, exit code) of the job at its end; `output` is shown as it grows.

    A requeued job is waited for until it is really over: SLURM shows it as pending, then running again.
    """
    shown = 0
    while True:
        state, code = job_state(job)
        if output is not None:
            shown = _show(output, shown, terminal)
        if state in QUIET_ENDS:
            return state, code
        time.sleep(POLL_SECONDS)


def job_state(job: str) -> tuple[str, int]:
    """UNKNOWN where the controller does not answer just now."""
    command = ["scontrol", "--oneliner", "show", "job", job]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "UNKNOWN", 1
    if "Invalid job id" in done.stderr:
        return "COMPLETED", 0  # forgotten, some minutes after its end
    return parse_job(done.stdout)


def parse_job(shown: str) -> tuple[str, int]:
    """Out of `scontrol --oneliner show job`; of an array the state that is furthest from its end, the worst exit code."""
    jobs = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in shown.splitlines()]
    found = [
        (fields["JobState"], _code(fields.get("ExitCode", "0:0"))) for fields in jobs if "JobState" in fields
    ]
    if not found:
        return "UNKNOWN", 1
    unfinished = [state for state, _ in found if state not in QUIET_ENDS]
    failed = [state for state, _ in found if state != "COMPLETED"]
    return (unfinished or failed or ["COMPLETED"])[0], max(code for _, code in found)


def _code(text: str) -> int:
    """`3:0` is exit code 3, `0:9` is signal 9."""
    code, _, number = text.partition(":")
    return int(code) or (128 + int(number) if int(number or 0) else 0)


def _show(path: Path, start: int, terminal: IO[bytes]) -> int:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(start)
        data = file.read()
        terminal.write(data)
        terminal.flush()
        return start + len(data)
    return start
