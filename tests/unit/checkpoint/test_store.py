"""Saving, pointing, pruning, and going on from one of several snapshots."""

import gc
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
from small_snapshots import save, tensors_of

from distxcept.checkpoint.snapshot import SnapshotError
from distxcept.checkpoint.store import BEST, LATEST, Store
from distxcept.memory.limit import peak_bytes


def names(run_folder):
    return sorted(path.name for path in (run_folder / "checkpoints").iterdir())


def test_newest_and_best_are_kept(tmp_path):
    for update in range(1, 8):
        save(tmp_path, update, keep=2, best=update == 3)
    assert names(tmp_path) == [BEST, LATEST, "update-00000003", "update-00000006", "update-00000007"]
    assert (Store(tmp_path).latest(), Store(tmp_path).best()) == (7, 3)


def test_a_whole_snapshot_is_never_replaced(tmp_path):
    """So there is no moment without it. A run computes an update once, hence the content is the same."""
    path = save(tmp_path, 5, value=1.0)
    inode = path.stat().st_ino
    save(tmp_path, 5, value=2.0, best=True)
    assert path.stat().st_ino == inode
    assert Store(tmp_path).best() == 5


def test_a_damaged_one_is_replaced(tmp_path):
    (save(tmp_path, 5, value=1.0) / "state.json").unlink()
    save(tmp_path, 5, value=2.0)
    assert (Store(tmp_path).choose().snapshot.tensors()["weights/a"] == 2.0).all()
    assert names(tmp_path) == [LATEST, "update-00000005"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"snapshot": 7}', '{"snapshot": "../../etc"}', '{"snapshot": "update-1"}',
             '{"snapshot": "update-00000002/../.."}'],
)  # fmt: skip
def test_a_pointer_that_points_nowhere_is_no_pointer(tmp_path, text):
    save(tmp_path, 2, best=True)
    for pointer in (LATEST, BEST):
        (tmp_path / "checkpoints" / pointer).write_text(text)
    store = Store(tmp_path)
    assert (store.latest(), store.best()) == (None, None)
    assert store.choose().snapshot.update == 2


@pytest.mark.parametrize("named", [1, 9])
def test_a_stale_pointer_is_survived(tmp_path, named):
    """It may be older than the newest snapshot, or name one that is gone; the second is said."""
    save(tmp_path, 1)
    save(tmp_path, 2)
    (tmp_path / "checkpoints" / LATEST).write_text(json.dumps({"snapshot": f"update-{named:08d}"}))
    choice = Store(tmp_path).choose()
    assert choice.snapshot.update == 2
    assert [("names update-00000009, which is not there" in why) for why in choice.passed_over] == [True] * (
        named == 9
    )


def test_a_damaged_newer_one_does_not_push_out_good_ones(tmp_path):
    save(tmp_path, 90)
    (save(tmp_path, 5000) / "manifest.json").write_text("{")
    store = Store(tmp_path)
    assert store.choose().snapshot.update == 90
    store.go_on_from(90)
    save(tmp_path, 100, keep=1)
    assert store.updates() == [100]
    assert (tmp_path / "set-aside" / "update-00005000-1").is_dir()


def test_starting_anew_sets_the_old_ones_aside_every_time(tmp_path):
    store = Store(tmp_path)
    for number in (1, 2):
        save(tmp_path, 10, best=True)
        save(tmp_path, 20)
        assert len(store.go_on_from(0)) == 2
        assert store.updates() == []
        assert (store.latest(), store.best()) == (None, None)
        assert (tmp_path / "set-aside" / f"update-00000020-{number}").is_dir()


def test_leftovers_are_cleaned_and_nothing_else(tmp_path):
    save(tmp_path, 1, best=True)
    folder = tmp_path / "checkpoints"
    before = names(tmp_path)
    for leftover in (".writing-update-00000002-77", ".removing-update-00000000"):
        (folder / leftover).mkdir()
        (folder / leftover / "tensors.safetensors").write_bytes(b"x")
    (folder / ".latest.json.writing").write_text("{")
    Store(tmp_path).clean()
    assert names(tmp_path) == before


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    save(tmp_path, 1)
    before = names(tmp_path)
    with pytest.raises(TypeError):
        Store(tmp_path).save(2, {"a": np.zeros(1)}, {"x": object()}, keep=1)
    assert names(tmp_path) == before


def test_too_little_space_is_noticed_before_writing(tmp_path, monkeypatch):
    save(tmp_path, 1)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    with pytest.raises(SnapshotError, match=r"1\.0 MiB free, and a snapshot needs"):
        save(tmp_path, 2)
    assert Store(tmp_path).choose().snapshot.update == 1


def test_a_thousand_saves(tmp_path, monkeypatch):
    """Never without a valid one, never more than keep + 1 on the disk, no growth of memory or open files."""
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: None
    )  # no power fails here, and disks differ by 100 ×
    store = Store(tmp_path)
    most = []
    real = os.rename

    def rename(source, target):
        real(source, target)
        most.append(len(store.updates()))
        assert store.choose().snapshot.update >= done

    monkeypatch.setattr(os, "rename", rename)
    memory = []
    for done in range(1000):
        store.save(done + 1, tensors_of(done + 1), {"progress": {}}, keep=3)
        if done in (200, 999):
            gc.collect()
            memory.append((peak_bytes(), len(os.listdir("/proc/self/fd"))))
    assert max(most) == 4
    assert store.updates() == [1000, 999, 998]
    (before, files_before), (after, files_after) = memory
    assert files_after == files_before
    assert after - before < 8 * 2**20
