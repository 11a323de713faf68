"""A snapshot is whole or it is passed over."""

import numpy as np
import pytest

from distxcept.checkpoint.snapshot import (
    BEST,
    MANIFEST,
    STATE,
    TENSORS,
    SnapshotError,
    newest_snapshot,
    open_snapshot,
    save_snapshot,
)


def save(folder, update, *, keep=3, best=False, value=1.0):
    tensors = {
        "weights/a": np.full((2, 3), value, np.float32),
        "counters/applied": np.asarray(update, np.int64),
    }
    return save_snapshot(folder, update, tensors, {"progress": {"update": update}}, keep=keep, best=best)


def test_what_is_saved_comes_back(tmp_path):
    save(tmp_path, 7, value=0.25)
    snapshot, passed_over = newest_snapshot(tmp_path)
    assert passed_over == []
    assert snapshot.update == 7
    assert snapshot.state == {"progress": {"update": 7}}
    tensors = snapshot.tensors()
    assert tensors["weights/a"].dtype == np.float32
    assert (tensors["weights/a"] == 0.25).all()
    assert tensors["counters/applied"] == 7
    assert tensors["counters/applied"].shape == ()


def test_newest_and_best_are_kept(tmp_path):
    for update in range(1, 8):
        save(tmp_path, update, keep=2, best=update == 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        BEST,
        "update-00000003",
        "update-00000006",
        "update-00000007",
    ]


def test_same_update_twice_keeps_the_newer(tmp_path):
    save(tmp_path, 5, value=1.0)
    save(tmp_path, 5, value=2.0)
    assert (newest_snapshot(tmp_path)[0].tensors()["weights/a"] == 2.0).all()


@pytest.mark.parametrize("file", [TENSORS, STATE, MANIFEST])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "empty"])
def test_damage_is_noticed_and_the_older_one_taken(tmp_path, file, damage):
    save(tmp_path, 1)
    path = save(tmp_path, 2) / file
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 0x10
        path.write_bytes(content)
    elif damage == "cut":
        path.write_bytes(content[:-1])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
    snapshot, passed_over = newest_snapshot(tmp_path)
    assert snapshot.update == 1
    assert len(passed_over) == 1
    assert "update-00000002" in passed_over[0]


def test_nothing_saved(tmp_path):
    assert newest_snapshot(tmp_path / "none") == (None, [])
    with pytest.raises(SnapshotError):
        open_snapshot(tmp_path / "none")


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(TypeError):
        save_snapshot(tmp_path, 2, {"a": np.zeros(1)}, {"x": object()}, keep=1, best=False)
    assert [path.name for path in tmp_path.iterdir()] == ["update-00000001"]
