"""The supervisor around any program: `supervise.py RUN_FOLDER MAX_RESTARTS GRACE_SECONDS PROGRAM…`."""

import os
import sys
from pathlib import Path

from distxcept.launch.supervisor import Policy, Supervisor, make_folders


class AnyProgram:
    size = 1

    def __init__(self, command):
        self._command = command

    def command(self, *, resume_auto):
        return [*self._command, *["resume"] * resume_auto]

    def environ(self):
        return os.environ

    def clean(self, line):
        return line

    def after_loss(self, ending):
        return self, ""


folder, restarts, grace, *command = sys.argv[1:]
make_folders(Path(folder))
policy = Policy(max_restarts=int(restarts), grace_seconds=float(grace), first_pause_seconds=0.01)


def say(message: str) -> None:
    print(f"supervisor: {message}", file=sys.stderr, flush=True)


sys.exit(Supervisor(Path(folder), AnyProgram(command), policy, say).run())
