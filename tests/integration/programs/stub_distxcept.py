"""`distxcept` with everything real but the training, which stub_training.py plays: for tests of launchers and batch jobs."""

import os
import sys
from pathlib import Path

from distxcept.cli import main
from distxcept.launch import ranks


def arguments(self, *, resume_auto):
    training = str(Path(__file__).with_name("stub_training.py"))
    return [sys.executable, training, os.path.abspath(self.run_folder), *self.overrides]


ranks.Program.arguments = arguments
main.entry()
