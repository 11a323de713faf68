"""What travels inside of an exported file, whatever the file is."""

import json
import zipfile

import numpy as np

from distxcept.export.card import embed, packed_size_of, read_embedded, sha256_of_export, size_of

MEMBERS = {"distxcept.json": json.dumps({"class_names": ["a", "\udcff"]}), "labels.txt": "a\n\udcff\n"}


def test_behind_the_end_of_a_file_that_is_no_archive(tmp_path):
    """As TFLite's own tools do: what reads the front does not see it, what reads archives does."""
    path = tmp_path / "model.tflite"
    path.write_bytes(b"TFL3" + bytes(range(256)))
    embed(path, MEMBERS)
    assert path.read_bytes().startswith(b"TFL3" + bytes(range(256)))
    assert read_embedded(path)["class_names"] == ["a", "\udcff"]
    with zipfile.ZipFile(path) as archive:
        assert archive.read("labels.txt") == b"a\n\xff\n"


def test_in_an_archive_beside_what_is_there(tmp_path):
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
    embed(path, MEMBERS)
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["config.json", "distxcept.json", "labels.txt"]
        assert archive.testzip() is None


def test_the_same_content_gives_the_same_digest(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "variables").mkdir(parents=True)
        (tmp_path / name / "variables" / "data").write_bytes(b"x" * 10)
        (tmp_path / name / "graph").write_bytes(b"y")
    assert sha256_of_export(tmp_path / "one") == sha256_of_export(tmp_path / "two")
    assert size_of(tmp_path / "one") == 11
    (tmp_path / "two" / "graph").rename(tmp_path / "two" / "other")
    assert sha256_of_export(tmp_path / "one") != sha256_of_export(tmp_path / "two")


def test_zeros_take_no_room_when_packed(tmp_path):
    values = np.random.default_rng(0).normal(size=(2, 50_000)).astype(np.float32)
    values[1] = 0
    (tmp_path / "one").write_bytes(values.tobytes())
    (tmp_path / "two").write_bytes(values[0].tobytes())
    assert size_of(tmp_path) == 600_000
    assert 0.85 * 400_000 < packed_size_of(tmp_path) < 401_000
    assert packed_size_of(tmp_path / "one") < 1.01 * packed_size_of(tmp_path / "two")
