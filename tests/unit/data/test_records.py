"""The TFRecord format, against TensorFlow's own bytes and known checksums."""

import io
import os
import struct

import numpy as np
import pytest

from distxcept.data.records.crc32c import crc32c, masked_crc32c
from distxcept.data.records.example import BrokenExample, encode_example, find_features
from distxcept.data.records.index import GOOD, NO_IMAGE, NO_LABEL, WRONG_CRC, index_shard
from distxcept.data.records.shard import read_records, write_record
from distxcept.errors import DataError

IMAGE, LABEL = "image/encoded", "image/class/label"


# From RFC 3720, appendix B.4.
@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (b"\x00" * 32, 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_checksum_of_known_data(data, crc):
    assert crc32c(data) == crc


def test_checksum_of_any_length_agrees_with_the_plain_loop():
    def plain(data):
        state = 0xFFFFFFFF
        for byte in data:
            state ^= byte
            for _ in range(8):
                state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
        return state ^ 0xFFFFFFFF

    data = np.random.default_rng(0).bytes(5000)
    for size in [*range(60, 200), 1000, 1023, 1024, 1025, 4999]:
        assert crc32c(data[:size]) == plain(data[:size])


def test_the_bytes_are_those_of_tensorflow():
    """Written once by tf.io.TFRecordWriter from a tf.train.Example; kept here so that no TensorFlow is needed."""
    theirs = bytes.fromhex(
        "39000000000000008b0737f1"
        "0a370a1a0a11696d6167652f636c6173732f6c6162656c12051a030a0107"
        "0a190a0d696d6167652f656e636f64656412080a060a0461626364"
        "afe5c84b"
    )
    file = io.BytesIO()
    write_record(file, encode_example({LABEL: 7, IMAGE: b"abcd"}))
    assert file.getvalue() == theirs


@pytest.mark.parametrize("label", [0, 1, 127, 128, 10**12, -1, -(2**63)])
def test_integers_survive(label):
    assert find_features(encode_example({LABEL: label}), {LABEL})[LABEL].integer == label


def test_damaged_examples_raise_one_error():
    whole = encode_example({"image/filename": b"x" * 40, IMAGE: b"y" * 300, LABEL: 3})
    random = np.random.default_rng(1)
    for _ in range(500):
        data = bytearray(whole)
        for at in random.integers(0, len(data), 3):
            data[at] = random.integers(256)
        try:
            for feature in find_features(
                bytes(data[: random.integers(len(data) + 1)]), {IMAGE, LABEL}
            ).values():
                assert 0 <= feature.start <= feature.stop <= len(data)
        except BrokenExample:
            pass


def write_shard(path, records):
    with path.open("wb") as file:
        return [write_record(file, record) for record in records]


def test_records_come_back_and_wrong_data_is_told(tmp_path):
    path = tmp_path / "a.tfrecord"
    offsets = write_shard(path, [b"one", b"", b"three" * 100])
    assert [(r.offset, r.data, r.intact) for r in read_records(path)] == [
        (offsets[0], b"one", True),
        (offsets[1], b"", True),
        (offsets[2], b"three" * 100, True),
    ]
    data = bytearray(path.read_bytes())
    data[offsets[0]] ^= 1
    path.write_bytes(data)
    assert [r.intact for r in read_records(path)] == [False, True, True]


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
        list(read_records(path))


def test_index_rows_point_at_the_image_and_name_what_is_wrong(tmp_path):
    path = tmp_path / "a.tfrecord"
    good = encode_example({"image/filename": b"a.jpg", IMAGE: b"picture", LABEL: 4})
    records = [good, good, encode_example({LABEL: 1}), encode_example({IMAGE: b"x"}), b"\xff\xff\xff"]
    offsets = write_shard(path, records)
    data = bytearray(path.read_bytes())
    data[offsets[1] + 5] ^= 1
    path.write_bytes(data)
    rows = index_shard(3, path, IMAGE, LABEL)
    assert rows["state"].tolist() == [GOOD, WRONG_CRC, NO_IMAGE, NO_LABEL, NO_IMAGE]
    assert set(rows["shard"]) == {3}
    assert rows["label"][0] == 4
    with path.open("rb") as file:
        assert os.pread(file.fileno(), int(rows["image_length"][0]), int(rows["image"][0])) == b"picture"
