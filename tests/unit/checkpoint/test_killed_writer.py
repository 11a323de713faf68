"""Whatever file operation is the writer's last, the newest completed snapshot is whole and the next start finds it."""

import json
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]


def test_killed_at_every_file_operation(tmp_path):
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("killed_writer.py")), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["wrong"] == {}
    assert result["operations"] >= 200
