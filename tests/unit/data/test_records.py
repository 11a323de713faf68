"""The TFRecord format against TensorFlow's own, and the index of shards."""

import os
import struct

import google_crc32c
import numpy as np
import pytest
import tensorflow as tf

from distxcept.data.records.index import (
    GOOD,
    NO_IMAGE,
    NO_LABEL,
    ROW,
    WRONG_CRC,
    index_shard,
    read_index,
    write_index,
)
from distxcept.data.records.shard import (
    bytes_in_example,
    encode_example,
    find_in_example,
    masked_crc32c,
    read_records,
    write_record,
)
from distxcept.errors import DataError

IMAGE, LABEL = "image/encoded", "image/class/label"


def test_records_and_examples_are_those_of_tensorflow(tmp_path):
    feature = {
        IMAGE: tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"abcd"])),
        LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=[7])),
    }
    theirs = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(
        deterministic=True
    )
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        writer.write(theirs)
        writer.write(b"")
    ours = encode_example({LABEL: 7, IMAGE: b"abcd"})
    assert ours == theirs
    write_shard(tmp_path / "ours", [ours, b""])
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert [record.data for record in read_records(str(tmp_path / "theirs"))] == [theirs, b""]


@pytest.mark.parametrize("label", [0, 1, 127, 128, 10**12, -1, -(2**63)])
def test_integers_survive(label):
    assert find_in_example(encode_example({LABEL: label}), IMAGE, LABEL).label == label


@pytest.mark.parametrize("image", [b"", b"a", b"image", b"\xff\xd8" + b"\0" * 300, b"x" * 100_000])
def test_the_place_of_an_image_holds_its_bytes(image):
    """Also where the same bytes stand in a name before it."""
    record = encode_example({"image/filename": b"a image", LABEL: 1, IMAGE: image})
    start, stop = find_in_example(record, IMAGE, LABEL).image
    assert record[start:stop] == image
    assert bytes_in_example(record, "image/filename") == b"a image"


def test_other_kinds_of_values_are_not_taken():
    swapped = find_in_example(encode_example({IMAGE: 3, LABEL: b"x"}), IMAGE, LABEL)
    assert (swapped.image, swapped.label) == (None, None)
    empty = tf.train.Example()
    empty.features.feature[IMAGE].bytes_list.SetInParent()
    assert find_in_example(empty.SerializeToString(), IMAGE, LABEL).image is None


def test_damaged_examples_raise_nothing():
    whole = encode_example({"image/filename": b"x" * 40, IMAGE: b"y" * 300, LABEL: 3})
    random = np.random.default_rng(1)
    for _ in range(500):
        data = bytearray(whole)
        for at in random.integers(0, len(data), 3):
            data[at] = random.integers(256)
        cut = bytes(data[: random.integers(len(data) + 1)])
        start, stop = find_in_example(cut, IMAGE, LABEL).image or (0, 0)
        assert 0 <= start <= stop <= len(cut)


def write_shard(path, records):
    offsets, end = [], 0
    with path.open("wb") as file:
        for record in records:
            offset, end = write_record(file, end, record)
            offsets.append(offset)
            assert file.tell() == end
    return offsets


def test_records_come_back_and_wrong_data_is_told(tmp_path):
    path = tmp_path / "a.tfrecord"
    offsets = write_shard(path, [b"one", b"", b"three" * 100])
    assert [(r.offset, r.data, r.intact) for r in read_records(str(path))] == [
        (offsets[0], b"one", True),
        (offsets[1], b"", True),
        (offsets[2], b"three" * 100, True),
    ]
    data = bytearray(path.read_bytes())
    data[offsets[0]] ^= 1
    path.write_bytes(data)
    assert [r.intact for r in read_records(str(path))] == [False, True, True]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-2], "middle of a record"),
        (lambda data: data + b"\0\0", "middle of a record"),
        (lambda data: b"\xff" + data[1:], "wrong checksum"),
        (
            lambda data: struct.pack("<QI", 2**60, masked_crc32c(struct.pack("<Q", 2**60))),
            "middle of a record",
        ),
        (lambda data: b"\x1f\x8b\x08" + data, "compressed"),
    ],
)
def test_a_shard_that_cannot_be_followed_is_an_error(tmp_path, damage, message):
    path = tmp_path / "a.tfrecord"
    write_shard(path, [b"one"])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=message):
        list(read_records(str(path)))


def test_index_rows_point_at_the_image_and_name_what_is_wrong(tmp_path):
    path = tmp_path / "a.tfrecord"
    good = encode_example({"image/filename": b"a.jpg", IMAGE: b"picture", LABEL: 4})
    records = [good, good, encode_example({LABEL: 1}), encode_example({IMAGE: b"x"}), b"\xff\xff\xff"]
    offsets = write_shard(path, records)
    data = bytearray(path.read_bytes())
    data[offsets[1] + 5] ^= 1
    path.write_bytes(data)
    rows = index_shard(3, str(path), IMAGE, LABEL)
    assert rows["state"].tolist() == [GOOD, WRONG_CRC, NO_IMAGE, NO_LABEL, NO_IMAGE]
    assert set(rows["shard"]) == {3}
    assert rows["label"][0] == 4
    with path.open("rb") as file:
        assert os.pread(file.fileno(), int(rows["image_length"][0]), int(rows["image"][0])) == b"picture"
    assert rows["crc32c"][0] == google_crc32c.value(b"picture")


def test_an_index_is_read_back_only_if_it_belongs_to_the_shards(tmp_path):
    shard, head = tmp_path / "a.tfrecord", str(tmp_path / "i.json")
    write_shard(shard, [encode_example({IMAGE: b"picture", LABEL: 4})])
    rows = index_shard(0, str(shard), IMAGE, LABEL)
    write_index(head, [str(shard)], rows, settings={"image_key": IMAGE})
    found = read_index(head, [str(shard)], {"image_key": IMAGE})
    assert np.array_equal(found.rows, rows)
    assert found.shards == (str(shard),)
    assert read_index(head, [str(shard)], {"image_key": "other"}) is None
    assert read_index(head, [str(shard)], {}, versions=(1,)) is None
    np.save(tmp_path / "i.npy", rows.astype([(n, ROW[n] if n != "crc32c" else "<u8") for n in ROW.names]))
    assert read_index(head, [str(shard)], {}) is None
    with shard.open("ab") as file:
        file.write(b"x")
    write_index(head, [str(shard)], rows, settings={})
    assert read_index(head, [str(shard)], {}) is not None
    write_shard(shard, [b"other length"])
    assert read_index(head, [str(shard)], {}) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tfrecord", "i.json", "i.npy"]
