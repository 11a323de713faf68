"""Starting the probe and reading what it said, whatever became of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distxcept.doctor.probe import STAGES


@dataclass(frozen=True)
class ProbeReport:
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    died_in: str | None = None
    """The stage that was under way when the process ended or was ended."""
    how: str | None = None
    """How it ended, e.g. `SIGSEGV`, `no answer in 60 s`."""

    def stage(self, name: str) -> Mapping[str, Any] | None:
        return self.stages.get(name)


class Probe:
    """Runs beside the other checks: start early, `finish` late."""

    def __init__(self, command: list[str] | None = None):
        self._process = subprocess.Popen(
            command or [sys.executable, "-m", "distxcept.doctor.probe"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def finish(self, timeout_seconds: float) -> ProbeReport:
        try:
            output, _ = self._process.communicate(timeout=timeout_seconds)
            how = _how_it_ended(self._process.returncode)
        except subprocess.TimeoutExpired:
            self.stop()
            output, _ = self._process.communicate()
            how = f"no answer in {timeout_seconds:g} s"
        return read_report(output, how)

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def read_report(output: str, how: str) -> ProbeReport:
    """Lines that are not ours (libraries print on standard output too) are passed over."""
    stages: dict[str, Mapping[str, Any]] = {}
    under_way: str | None = None
    for line in output.splitlines():
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if not isinstance(message, dict):
            continue
        if message.get("starting") in STAGES:
            under_way = message["starting"]
        elif message.get("stage") in STAGES:
            stages[message.pop("stage")] = message
            under_way = None
    if len(stages) == len(STAGES):
        return ProbeReport(stages)
    return ProbeReport(stages, died_in=under_way or STAGES[len(stages)], how=how)


def _how_it_ended(return_code: int) -> str:
    if return_code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-return_code).name
    return f"exit code {return_code}"
