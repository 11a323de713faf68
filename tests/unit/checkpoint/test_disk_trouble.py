"""A full disk, a folder without permission, a disk that became read-only: the older snapshot stays whole."""

import errno
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from small_snapshots import save

from distxcept.checkpoint.snapshot import SnapshotError
from distxcept.checkpoint.store import Store


@pytest.fixture
def small_disk(tmp_path):
    """6 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "distxcept-test", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here, which takes root: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def large(store: Store, update: int) -> Path:
    return store.save(update, {"a": np.full(3 << 18, update, np.float32)}, {}, keep=2)


@pytest.mark.parametrize("check", [True, False], ids=["noticed before", "in the middle of a file"])
def test_a_full_disk(small_disk, check, monkeypatch):
    """Half of it is taken, as much again does not fit; the free space says so, or somebody took it meanwhile."""
    store = Store(small_disk)
    large(store, 1)
    if not check:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 40))
    with pytest.raises((SnapshotError, OSError)) as raised:
        large(store, 2)
    if check:
        assert "MiB free, and a snapshot needs 3.0 MiB" in str(raised.value)
    else:
        assert raised.value.errno == errno.ENOSPC
    assert store.choose().snapshot.update == 1
    assert sorted(os.listdir(store.folder)) == ["latest.json", "update-00000001"]
    save(small_disk, 3)  # a small one fits
    assert store.choose().snapshot.update == 3


def test_a_disk_that_became_read_only(small_disk):
    save(small_disk, 1)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(OSError) as raised:
        save(small_disk, 2)
    assert raised.value.errno == errno.EROFS
    assert Store(small_disk).choose().snapshot.update == 1
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    save(small_disk, 2)
    assert Store(small_disk).choose().snapshot.update == 2


def test_no_permission(tmp_path):
    """Root may write anywhere, so a child that is nobody tries."""
    save(tmp_path, 1)
    folder = tmp_path / "checkpoints"
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == folder.owner() and str(path).startswith("/tmp/"):
            path.chmod(0o755)
    folder.chmod(0o555)
    try:
        if os.getuid() == 0:
            child = os.fork()
            if child == 0:
                os.setuid(65534)
                os._exit(_errno_of_save(tmp_path))
            found = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        else:
            found = _errno_of_save(tmp_path)
    finally:
        folder.chmod(0o755)
    assert found == errno.EACCES
    assert Store(tmp_path).choose().snapshot.update == 1


def _errno_of_save(run_folder: Path) -> int:
    try:
        save(run_folder, 2)
    except OSError as error:
        return error.errno or 0
    return 0
