"""Starts `run_cases.py` for the cases of a test module, in as few processes as their engines allow."""

import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from equivalence.cases import Case
from launchers import MPIRUN, run, skip_without
from safetensors.numpy import load_file

SECONDS_PER_CASE = 120
PROGRAM = Path(__file__).with_name("run_cases.py")
PROCESS_OF = {"single": "single", "mirrored2": "mirrored", "mirrored3": "mirrored"}
"""Engines without a launcher, dealt to two processes that run side by side; Horovod's have a job each."""


@dataclass(frozen=True)
class Result:
    folder: Path
    case: Case

    def tensors(self) -> dict[str, np.ndarray]:
        return load_file(
            self.folder / "checkpoints" / f"update-{self.case.updates:08d}" / "tensors.safetensors"
        )

    def report(self) -> dict[str, Any]:
        return json.loads((self.folder / "run.json").read_text())


class Results:
    """The results of these cases and of all their references, computed when the first one is asked for."""

    def __init__(
        self,
        folder: Path,
        cases: Sequence[Case],
        *,
        optimize: bool = False,
        environ: Mapping[str, str] | None = None,
    ):
        """With `optimize` float64 graphs are rewritten by TensorFlow too, as users have it; float32 always are."""
        self._folder = folder
        self._optimize = optimize
        self._environ = [f"{name}={value}" for name, value in (environ or {}).items()]
        self._jobs: dict[str, list[Case]] = {}
        for case in dict.fromkeys([c.reference for c in cases if c.compared] + list(cases)):
            self._jobs.setdefault(PROCESS_OF.get(case.engine, case.engine), []).append(case)
        self._failures: dict[str, str] = {}
        self._ran: set[str] = set()

    def of(self, case: Case) -> Result:
        job = PROCESS_OF.get(case.engine, case.engine)
        if job.startswith("horovod"):
            skip_without("horovod", "mpirun")
        self._need(job)
        result = Result(self._folder / case.name, case)
        if not (result.folder / "run.json").exists():
            pytest.fail(f"{case.name} did not end: {self._failures.get(job, 'its job ended well')}")
        return result

    def _need(self, job: str) -> None:
        together = [name for name in self._jobs if not name.startswith("horovod")]
        wanted = [name for name in (together if job in together else [job]) if name not in self._ran]
        self._ran |= set(wanted)
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(self._run, wanted))

    def _run(self, job: str) -> None:
        cases = self._jobs[job]
        asked = self._folder / f"{job}.json"
        content = {"threads": 1, "optimize": self._optimize, "cases": [asdict(case) for case in cases]}
        asked.write_text(json.dumps(content))
        launch = [*MPIRUN, "-np", job.removeprefix("horovod")] if job.startswith("horovod") else []
        command = [
            *launch,
            "env",
            *self._environ,
            sys.executable,
            str(PROGRAM),
            str(asked),
            str(self._folder),
        ]
        try:
            done = run(command, timeout_seconds=600 + SECONDS_PER_CASE * len(cases))
        except AssertionError as error:
            self._failures[job] = str(error)
            return
        if done.returncode:
            self._failures[job] = f"exit {done.returncode}\n{done.stderr[-4000:]}"
