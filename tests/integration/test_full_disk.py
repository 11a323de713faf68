"""A real training on a disk that fills up: it warns, gives up with its code, and goes on once there is space."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from small_runs import UPDATES, finish, start, train, updates_told

from distxcept.checkpoint.store import Store


@pytest.fixture
def disk(tmp_path):
    """64 MiB: dozens of snapshots of the small model."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "distxcept-test", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here, which takes root: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    file = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    for size in (1 << 20, 1 << 12):
        try:
            while os.write(file, bytes(size)) == size:
                pass
        except OSError:
            continue
    os.close(file)
    return ballast


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_disk_that_fills_up(disk, tmp_path):
    whole = finish(tmp_path / "whole", train(tmp_path / "whole"))
    folder = disk / "run"
    process = start(train(folder))
    while updates_told(folder) < 3 and process.poll() is None:
        time.sleep(0.002)
    ballast = fill(disk)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 1, stderr[-3000:]
    lines = stderr.splitlines()
    assert "could not be saved" in lines[-1] and "run the same command again" in lines[-1]
    assert sum("warning: no snapshot of update" in line for line in lines) >= 5
    snapshot = Store(folder).choose().snapshot
    assert 3 <= snapshot.update < UPDATES
    assert json.loads((folder / "status" / "rank-0.json").read_text())["state"] in ("failed", "running")

    ballast.unlink()
    found = finish_with_gaps(folder)
    assert all(np.array_equal(found[name], whole[name]) for name in whole)
    assert shutil.disk_usage(disk).free > 0


def finish_with_gaps(folder: Path) -> dict[str, np.ndarray]:
    """As `finish`, but lines of metrics.jsonl may be missing: they were written to a full disk."""
    process = start(train(folder))
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr[-3000:]
    return Store(folder).choose().snapshot.tensors()
