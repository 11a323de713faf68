"""Packing: any sample by number, the same updates as the original, interrupted and gone on, checked."""

import hashlib
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from test_data_pipeline import collect, plan_of, write_images

from distxcept.config.schema import FolderSource, RecordsSource, SyntheticSource
from distxcept.data.header import inspect
from distxcept.data.pack import PackSettings, pack
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
        records(tmp_path / "p").read(7)  # opened anew: bytes are checked at their first reading
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
        "    p.pack(FolderSource(kind='folder', path=sys.argv[1]), p.Path(sys.argv[2]),\n"
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


def test_other_settings_do_not_mix(images, tmp_path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "packing.json").write_text(json.dumps({"source": "x", "settings": {}}))
    with pytest.raises(DataError, match="other data or settings"):
        pack(images, tmp_path / "p", workers=1)
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "mine.txt").write_text("x")
    with pytest.raises(DataError, match="is not empty"):
        pack(images, tmp_path / "q", workers=1)
