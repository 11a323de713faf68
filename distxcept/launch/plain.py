"""One rank without MPI."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from distxcept.launch.supervisor import Ranks
from distxcept.launch.verdict import Ending

RESUME_AUTO = "run.resume=auto"


@dataclass(frozen=True, kw_only=True)
class Program:
    """What every rank runs."""

    run_folder: Path
    config: str
    overrides: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def arguments(self, *, resume_auto: bool) -> list[str]:
        """An argument list: no shell ever reads it. Absolute paths, so that none is taken for an option."""
        return [
            sys.executable,
            "-m",
            "distxcept.cli.rank",
            os.path.abspath(self.run_folder),
            "--",
            "train",
            *self.options,
            os.path.abspath(self.config),
            *self.overrides,
            *([RESUME_AUTO] if resume_auto else []),
        ]


@dataclass(frozen=True)
class PlainRank:
    program: Program
    environment: Mapping[str, str]
    size: int = 1

    def command(self, *, resume_auto: bool) -> list[str]:
        return self.program.arguments(resume_auto=resume_auto)

    def environ(self) -> Mapping[str, str]:
        return self.environment

    def clean(self, line: bytes) -> bytes:
        return line

    def after_loss(self, ending: Ending) -> tuple[Ranks, str]:
        return self, ""
