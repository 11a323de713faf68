"""Run as a folder (`python launch/horovod_build`), so no install and no PYTHONPATH is needed."""

import sys
from pathlib import Path

# Python put this folder first on the path; its modules are imported by their full names instead.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from launch.horovod_build.cli import main  # noqa: E402 - after the path is set

sys.exit(main())
