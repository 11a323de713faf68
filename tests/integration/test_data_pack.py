"""Packing: any sample by number, the same updates as the original, interrupted and gone on, checked."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import zlib
from dataclasses import asdict

import numpy as np
import pytest
import tensorflow as tf
from test_dataset import collect, plan_of, write_images

from distxcept.config.schema import FolderSource, RecordsSource, SyntheticSource
from distxcept.data import pack as pack_module
from distxcept.data.header import inspect
from distxcept.data.pack import PackSettings, pack
from distxcept.data.records.index import ROW
from distxcept.data.sources import BadSample, open_source
from distxcept.errors import DataError


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = write_images(tmp_path_factory.mktemp("images"), count=40)
    (root / "class_0" / "empty.jpg").write_bytes(b"")
    return FolderSource(kind="folder", path=str(root))


def records(path):
    return open_source(RecordsSource(kind="records", path=str(path)))


SMALL = PackSettings(shard_bytes=20_000)


def test_packed_data_makes_the_same_updates(images, tmp_path):
    seen = []
    packed = pack(images, tmp_path / "p", settings=SMALL, workers=2, progress=lambda *now: seen.append(now))
    original, copy = open_source(images), records(tmp_path / "p")
    assert packed.samples == len(original) == len(copy) == 41
    assert packed.shards > 3
    assert seen[-1] == (41, 41)
    assert [(name.rsplit("/", 1)[1], reason) for name, reason in packed.bad] == [("empty.jpg", "empty file")]
    assert copy.class_names == original.class_names
    assert np.array_equal(copy.labels, original.labels)
    for k in (40, 0, 17):
        assert copy.read(k).encoded == original.read(k).encoded
        assert copy.name(k).endswith(f"({original.name(k)})")
    assert copy.name(40).startswith(str(tmp_path / "p" / "shard-"))
    assert collect(copy, plan_of(copy)) == collect(original, plan_of(original))


def test_the_shards_are_tfrecords_that_others_can_read(images, tmp_path):
    packed = pack(images, tmp_path / "p", settings=SMALL, workers=1)
    shards = sorted(str(path) for path in (tmp_path / "p").glob("*.tfrecord"))
    assert len(shards) == packed.shards
    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/class/text": tf.io.FixedLenFeature([], tf.string),
    }
    source = open_source(images)
    examples = [tf.io.parse_single_example(r, features) for r in tf.data.TFRecordDataset(shards)]
    assert [int(e["image/class/label"]) for e in examples] == source.labels.tolist()
    assert examples[3]["image/encoded"].numpy() == source.read(3).encoded
    assert examples[3]["image/class/text"].numpy() == b"class_0"
    head = json.loads((tmp_path / "p" / "index.json").read_text())
    for name, digest in head["sha256"].items():
        assert hashlib.sha256((tmp_path / "p" / name).read_bytes()).hexdigest() == digest


def test_shrinks_to_a_longest_side(images, tmp_path):
    pack(images, tmp_path / "p", settings=PackSettings(longest_side=128), workers=1)
    original, copy = open_source(images), records(tmp_path / "p")
    for k in range(len(copy)):
        data = copy.read(k).encoded
        if data:
            before = inspect(original.read(k).encoded, max_pixels=10**9)
            after = inspect(data, max_pixels=10**9)
            assert max(after.width, after.height) == min(128, max(before.width, before.height))
            assert after.width / after.height == pytest.approx(before.width / before.height, rel=0.03)


def test_arrays_are_packed_without_loss(tmp_path):
    section = SyntheticSource(kind="synthetic", samples=5, classes=2)
    pack(section, tmp_path / "p", workers=1)
    original, copy = open_source(section), records(tmp_path / "p")
    plan = plan_of(original, global_batch=4, micro_batch=4)
    assert collect(copy, plan, augment=None) == collect(original, plan, augment=None)


def test_wrong_bytes_and_half_packed_folders_are_noticed(images, tmp_path):
    pack(images, tmp_path / "p", settings=SMALL, workers=1)
    copy = records(tmp_path / "p")
    content = copy.read(7).encoded
    (shard,) = (s for s in (tmp_path / "p").glob("*.tfrecord") if content in s.read_bytes())
    shard.write_bytes(shard.read_bytes().replace(content, content[:-1] + b"\0"))
    with pytest.raises(BadSample, match="wrong CRC"):
        copy.read(7)
    damaged = records(tmp_path / "p")
    contents, ok = tf.function(damaged.contents)(tf.constant([6, 7, 8], tf.int64))
    assert ok.numpy().tolist() == [True, False, True]
    assert contents.numpy().tolist() == [damaged.read(6).encoded, b"", damaged.read(8).encoded]
    with pytest.raises(DataError, match="is packed already"):
        pack(images, tmp_path / "p", workers=1)
    shard.unlink()
    with pytest.raises(DataError, match="is missing"):
        records(tmp_path / "p")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "packing.json").write_text("{}")
    with pytest.raises(DataError, match="not packed to its end"):
        records(tmp_path / "half")


def test_goes_on_after_a_kill_at_any_time(images, tmp_path):
    """Killed after the first finished shard; the second run keeps that shard and gives the same data."""
    dest = tmp_path / "p"
    program = (
        "import os, signal, sys\n"
        "from distxcept.data import pack as p\n"
        "from distxcept.config.schema import FolderSource\n"
        "if __name__ == '__main__':\n"
        "    def stop(done, total):\n"
        "        if done >= 10: os.killpg(0, signal.SIGKILL)\n"
        "    p.pack(FolderSource(kind='folder', path=sys.argv[1]), sys.argv[2],\n"
        "           settings=p.PackSettings(shard_bytes=20_000), workers=1, progress=stop)\n"
    )
    script = tmp_path / "program.py"
    script.write_text(program)
    ended = subprocess.run(
        [sys.executable, script, images.path, dest], start_new_session=True, env=os.environ, timeout=120
    )
    assert ended.returncode == -signal.SIGKILL
    assert not (dest / "index.json").exists()
    finished = {path.name: path.stat().st_mtime_ns for path in dest.glob("*.tfrecord")}
    packed = pack(images, dest, settings=SMALL, workers=1)
    assert packed.kept_shards == len(finished) > 0
    assert finished == {name: (dest / name).stat().st_mtime_ns for name in finished}
    original, copy = open_source(images), records(dest)
    assert [copy.read(k).encoded for k in range(41)] == [original.read(k).encoded for k in range(41)]
    assert sorted(path.name for path in dest.iterdir() if path.suffix != ".tfrecord") == [
        "index.json",
        "index.npy",
    ]


def to_first_version(folder):
    """The index as the first version wrote it: zlib's checksum instead of CRC-32C, under another name."""
    source, head = records(folder), json.loads((folder / "index.json").read_text())
    rows = np.load(folder / "index.npy")
    old = np.zeros(len(rows), [(name if name != "crc32c" else "crc32", ROW[name]) for name in ROW.names])
    for name in old.dtype.names:
        old[name] = (
            [zlib.crc32(source.read(k).encoded) for k in range(len(rows))] if name == "crc32" else rows[name]
        )
    np.save(folder / "index.npy", old)
    (folder / "index.json").write_text(json.dumps({**head, "version": 1}))


def test_packs_of_the_first_version_are_read_and_compared(images, tmp_path):
    pack(images, tmp_path / "p", settings=SMALL, workers=1)
    to_first_version(tmp_path / "p")
    original, copy = open_source(images), records(tmp_path / "p")
    assert collect(copy, plan_of(copy)) == collect(original, plan_of(original))
    assert copy.class_names == original.class_names
    content = copy.read(7).encoded
    (shard,) = (s for s in (tmp_path / "p").glob("*.tfrecord") if content in s.read_bytes())
    shard.write_bytes(shard.read_bytes().replace(content, content[:-1] + b"\0"))
    with pytest.raises(BadSample, match="wrong CRC"):
        copy.read(7)
    _, ok = tf.function(records(tmp_path / "p").contents)(tf.constant([6, 7, 8], tf.int64))
    assert ok.numpy().tolist() == [True, False, True]
    head = json.loads((tmp_path / "p" / "index.json").read_text())
    (tmp_path / "p" / "index.json").write_text(json.dumps({**head, "version": 3}))
    with pytest.raises(DataError, match="of another version; pack the data again"):
        records(tmp_path / "p")


def test_packs_to_a_url_and_from_one(tmp_path):
    """In this process, because ram:// is the memory of one."""
    root = "ram://pack"
    here = write_images(tmp_path / "images", count=12)
    for path in here.rglob("*.jpg"):
        name = f"{root}/images/{path.relative_to(here)}"
        tf.io.gfile.makedirs(os.path.dirname(name))
        tf.io.gfile.copy(str(path), name)
    section = FolderSource(kind="folder", path=f"{root}/images")
    packed = pack(section, f"{root}/packed", settings=SMALL, workers=1)
    local = pack(FolderSource(kind="folder", path=str(here)), tmp_path / "p", settings=SMALL, workers=1)
    assert (packed.samples, packed.shards) == (12, local.shards)
    original, copy = open_source(section), records(f"{root}/packed")
    assert collect(copy, plan_of(copy)) == collect(original, plan_of(original))
    assert copy.digest() == records(tmp_path / "p").digest()
    names = [name for name in tf.io.gfile.listdir(f"{root}/packed") if not name.endswith(".tfrecord")]
    assert sorted(names) == ["index.json", "index.npy"]
    with pytest.raises(DataError, match="is packed already"):
        pack(section, f"{root}/packed", workers=1)
    tf.io.gfile.remove(next(iter(tf.io.gfile.glob(f"{root}/packed/*-00001-*"))))
    with pytest.raises(DataError, match="is missing"):
        records(f"{root}/packed")
    with pytest.raises(DataError, match="no file system for foo://"):
        pack(section, "foo://bucket/packed", workers=1)


def test_goes_on_at_a_url(images, monkeypatch):
    written = pack_module._write_shard

    def fail_later(source, dest, settings, job, one_more):
        if job[0] == 2:
            raise OSError(errno.EACCES, "Permission denied", dest)
        return written(source, dest, settings, job, one_more)

    monkeypatch.setattr(pack_module, "_write_shard", fail_later)
    with pytest.raises(
        DataError, match=r"packing: ram://half: Permission denied; ask for the right to use it"
    ):
        pack(images, "ram://half", settings=SMALL, workers=1)
    with pytest.raises(DataError, match="not packed to its end"):
        records("ram://half")
    monkeypatch.setattr(pack_module, "_write_shard", written)
    assert pack(images, "ram://half", settings=SMALL, workers=1).kept_shards == 2
    original, copy = open_source(images), records("ram://half")
    assert [copy.read(k).encoded for k in range(41)] == [original.read(k).encoded for k in range(41)]


def test_what_an_earlier_version_began_is_not_gone_on_with(images, tmp_path):
    (tmp_path / "p").mkdir()
    plan = {"source": open_source(images).digest(), "settings": asdict(SMALL), "samples_per_shard": 5}
    (tmp_path / "p" / "packing.json").write_text(json.dumps(plan))
    with pytest.raises(DataError, match="of another version"):
        pack(images, tmp_path / "p", settings=SMALL, workers=1)


def test_other_settings_do_not_mix(images, tmp_path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "packing.json").write_text(json.dumps({"source": "x", "settings": {}}))
    with pytest.raises(DataError, match="other data or settings"):
        pack(images, tmp_path / "p", workers=1)
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "mine.txt").write_text("x")
    with pytest.raises(DataError, match="is not empty"):
        pack(images, tmp_path / "q", workers=1)
