"""Everybody who looks at a training and writes down what they see: files, terminal, report, writers, profiler.

None of them but the callbacks of the Python interface can end the training: what fails is told once and left out.
"""

import argparse
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from distxcept.checkpoint.store import Store
from distxcept.config.schema import Config
from distxcept.report.console import Terminal
from distxcept.report.profiling import Profile
from distxcept.report.report_file import ReportFile
from distxcept.report.run_folder import RunFiles
from distxcept.report.runs import flatten
from distxcept.report.writers import About
from distxcept.report.writers.observer import Written
from distxcept.training.events import Observer, Observers

if TYPE_CHECKING:
    import numpy as np

    from distxcept.training.state import State


class Onlookers:
    """A context manager around everything else: the last to leave, because only then it is known how the run ended."""

    def __init__(self, args: argparse.Namespace, config: Config, run_folder: Path, *, chief: bool):
        self.terminal = Terminal(
            f"distxcept · {config.run.name}",
            quiet=args.quiet or not chief,
            verbose=args.verbose,
            next_commands=lambda: next_commands(run_folder, own_model=args.make_network is not None),
        )
        self.state: State | None = None
        """Known once the training is built."""
        hyperparameters = flatten(config.model_dump(mode="json"))
        self._written = Written(
            config.run.writers,
            About(config.run.name, run_folder, hyperparameters),
            read_weights=self._weights,
            warn=self._warn,
        )
        self._report = ReportFile(run_folder, self._warn, self._written.described)
        self._profile = (
            Profile(args.profile, run_folder / "tensorboard", self._tell) if args.profile else None
        )
        profile: list[Observer] = [self._profile] if self._profile else []
        # Of ours the terminal comes last: what it says at the end, the others have written.
        self.observer = Observers(
            [
                RunFiles(run_folder, self._warn),
                self._written,
                self._report,
                *profile,
                self.terminal,
                *args.callbacks,
            ]
        )
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # The report leaves before the writers: it has pictures for them.
        for one in (self._written, self._report, self.terminal, self._profile):
            if one is not None:
                self._stack.enter_context(one)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _weights(self) -> "dict[str, np.ndarray]":
        return {} if self.state is None else self.state.read_inference()

    def _warn(self, message: str) -> None:
        self.terminal.happened("warning", message)

    def _tell(self, message: str) -> None:
        self.terminal.happened("profile", message)


def next_commands(run_folder: Path, *, own_model: bool = False) -> list[str]:
    """What one wants to do with a trained model, at its best; one given from Python is known there only."""
    name = f"{run_folder}:best" if Store(run_folder).best() is not None else str(run_folder)
    if own_model:
        return [f"{call} of Run({name!r}, model=...)" for call in ("predict(...)", "evaluate()")]
    run = shlex.quote(name)
    return [
        f"distxcept predict {run} PHOTO.jpg",
        f"distxcept evaluate {run}",
        f"distxcept export {run} --format savedmodel",
    ]
