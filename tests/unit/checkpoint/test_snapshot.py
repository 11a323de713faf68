"""A snapshot is whole or it is passed over."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load, load_file
from small_snapshots import save

from distxcept.checkpoint.snapshot import MANIFEST, STATE, TENSORS, SnapshotError, open_snapshot
from distxcept.checkpoint.store import Store
from distxcept.checkpoint.tensors import Kind, OtherModelError, encode, read_tensors


def test_what_is_saved_comes_back(tmp_path):
    path = save(tmp_path, 7, value=0.25)
    choice = Store(tmp_path).choose()
    assert choice.passed_over == []
    assert choice.snapshot.update == 7
    assert choice.snapshot.path == path
    assert choice.snapshot.state == {"progress": {"update": 7}}
    tensors = choice.snapshot.tensors()
    assert tensors["weights/a"].dtype == np.float32
    assert (tensors["weights/a"] == 0.25).all()
    assert tensors["counters/applied"] == 7
    assert tensors["counters/applied"].shape == ()


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda name: name != "__metadata__"),
        st.sampled_from(["f8", "f4", "f2", "i8", "i4", "u1", "?"]).flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
        ),
        max_size=5,
    )
)
def test_any_safetensors_reader_reads_the_same(tensors):
    found = load(b"".join(encode(tensors)))
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        assert found[name].tobytes() == value.tobytes()


def test_arrays_that_are_not_contiguous(tmp_path):
    value = np.arange(12, dtype=np.float32).reshape(3, 4).T
    (tmp_path / "t").write_bytes(b"".join(encode({"a": value})))
    assert np.array_equal(load_file(tmp_path / "t")["a"], value)


def damage(path, kind, position=None):
    content = bytearray(path.read_bytes())
    if kind == "flip":
        content[position // 8] ^= 1 << position % 8
        path.write_bytes(content)
    elif kind == "cut":
        path.write_bytes(content[:position])
    else:
        path.unlink()


def cases():
    for file in (TENSORS, STATE, MANIFEST):
        for fraction in ("0", "1", "half", "all but one"):
            yield pytest.param(file, "cut", fraction, id=f"{file}-cut at {fraction}")
        yield pytest.param(file, "missing", None, id=f"{file}-missing")
        for number in range(40):
            yield pytest.param(file, "flip", number, id=f"{file}-bit {number}")


@pytest.mark.parametrize(("file", "kind", "where"), list(cases()))
def test_damage_is_noticed_and_the_one_before_taken(tmp_path, file, kind, where):
    save(tmp_path, 1)
    path = save(tmp_path, 2) / file
    size = path.stat().st_size
    if kind == "cut":
        where = {"0": 0, "1": 1, "half": size // 2, "all but one": size - 1}[where]
    elif kind == "flip":
        where = np.random.default_rng([where, size]).integers(size * 8)
    damage(path, kind, where)
    choice = Store(tmp_path).choose()
    if kind == "flip" and choice.snapshot.update == 2:
        # A bit of the manifest that says nothing: white space, or the case of a digit.
        assert file == MANIFEST
        assert open_snapshot(path.parent).tensors()["weights/a"].max() == 2
        return
    assert choice.snapshot.update == 1
    assert len(choice.passed_over) == 1
    assert "update-00000002" in choice.passed_over[0]


def test_nothing_saved(tmp_path):
    assert Store(tmp_path / "none").choose().snapshot is None
    with pytest.raises(SnapshotError):
        open_snapshot(tmp_path / "none")


def test_a_snapshot_under_another_name_is_not_taken_for_it(tmp_path):
    save(tmp_path, 3).rename(tmp_path / "checkpoints" / "update-00000009")
    with pytest.raises(SnapshotError, match="snapshot of update 3 under another name"):
        open_snapshot(tmp_path / "checkpoints" / "update-00000009")


def test_a_manifest_of_another_format(tmp_path):
    path = save(tmp_path, 3)
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps(manifest | {"format": 2}))
    with pytest.raises(SnapshotError, match="format 2, but this version reads 1"):
        open_snapshot(path)


A, APPLIED = Kind((2, 3), "float32"), Kind((), "int64")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"weights/a": Kind((2, 4), "float32"), "counters/applied": APPLIED}, r"a as \(2, 3\) float32, but .*\(2, 4\)"),
        ({"weights/a": Kind((2, 3), "float64"), "counters/applied": APPLIED}, r"as \(2, 3\) float32, but"),
        ({"weights/a": A, "counters/applied": APPLIED, "weights/b": A}, "has no weights/b"),
        ({"weights/a": A}, "has counters/applied, which this model and optimizer do not have"),
    ],
)  # fmt: skip
def test_another_model_is_recognised_before_values_are_read(tmp_path, monkeypatch, wanted, message):
    path = save(tmp_path, 1) / TENSORS
    assert read_tensors(path, {"weights/a": A, "counters/applied": APPLIED}).keys() == {
        "weights/a",
        "counters/applied",
    }
    with pytest.raises(OtherModelError, match=message):
        read_tensors(path, wanted)
