"""`distxcept doctor` as a user runs it, with the real TensorFlow in its child process."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_doctor_on_this_machine() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("distxcept")), "doctor", "--json", "--timeout", "300"],
        env={**os.environ, "MY_API_TOKEN": "hunter2"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode in (0, 1), done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert (answer["status"] == "problem") == (done.returncode == 1)
    by_area = {
        area: [one for one in answer["findings"] if one["area"] == area]
        for area in (
            "python",
            "packages",
            "environment",
            "advisories",
            "tensorflow",
            "gpu",
            "launchers",
            "host",
        )
    }
    assert all(by_area.values()), by_area
    assert by_area["tensorflow"][0]["text"].startswith("TensorFlow 2.21")
    assert any("training runs on" in one["text"] for one in by_area["gpu"])
    assert all(one["remedy"] for one in answer["findings"] if one["status"] != "ok")
