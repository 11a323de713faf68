"""Reading files inside the graph, by the compiled operation and by Python: contents, ranges, errors, other storages."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import google_crc32c
import pytest
import tensorflow as tf

from distxcept.data import op
from distxcept.data.decode import checksums, read_files

HERE = Path(__file__).parent


@pytest.fixture(params=["compiled", "python"], autouse=True)
def way(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setenv(op.VARIABLE, "off")
    elif op.library() is None:
        pytest.skip("no C++ compiler: apt-get install g++")
    return request.param


def read(paths, offsets=None, lengths=None):
    """In a graph, with the contents of what is ok."""
    tensors = [tf.constant([os.fsencode(path) for path in paths], tf.string)]
    if lengths is not None:
        tensors += [tf.constant(numbers, tf.int64) for numbers in (offsets, lengths)]
    contents, ok = tf.function(read_files)(*tensors)
    assert contents.shape == ok.shape == (len(paths),)
    found = zip(contents.numpy(), ok.numpy(), strict=True)
    return [content if good else None for content, good in found]


def test_whole_files(tmp_path):
    files = {
        "plain": b"some bytes",
        "zeros at the end": b"\0x\0\0",
        "empty": b"",
        "large": os.urandom(3_000_000),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "link").symlink_to("plain")
    strange = os.fsencode(tmp_path) + b"/\xff\xfe a://b"
    Path(os.fsdecode(strange)).write_bytes(b"strange") if os.mkdir(
        os.path.dirname(strange[:-1])
    ) is None else None
    paths = [*(tmp_path / name for name in files), tmp_path / "link", os.fsdecode(strange)]
    assert read(paths) == [*files.values(), files["plain"], b"strange"]


def test_what_has_no_contents_is_not_ok_and_harms_no_other(tmp_path):
    """A FIFO or a device would be read for ever."""
    (tmp_path / "file").write_bytes(b"good")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "nowhere").symlink_to("missing")
    paths = ["missing", "folder", "fifo", "circle", "nowhere", "file/below", "file\0"]
    begun = time.monotonic()
    found = read(
        ["", tmp_path / "file", *(tmp_path / path for path in paths), "/dev/zero", tmp_path / "file"]
    )
    assert found == [None, b"good", *[None] * 8, b"good"]
    assert time.monotonic() - begun < 5, "none of these errors passes by waiting"


def test_unreadable_files(tmp_path):
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "secret").chmod(0)
    if os.access(tmp_path / "secret", os.R_OK):
        pytest.skip("root reads everything")
    assert read([tmp_path / "secret"]) == [None]


def test_ranges(tmp_path):
    content = os.urandom(1000)
    (tmp_path / "shard").write_bytes(content)
    ranges = [(0, 10), (990, 10), (5, 0), (1000, 0), (0, -1), (400, -1), (1000, -1), (123, 456)]
    outside = [
        (991, 10),
        (1001, 0),
        (1001, -1),
        (-1, 5),
        (-1, -1),
        (0, 1001),
        (2**62, 2**62),
        (0, 2**63 - 1),
        (5, 2**40),
    ]
    offsets, lengths = zip(*ranges, *outside, strict=True)
    found = read([tmp_path / "shard"] * len(offsets), offsets, lengths)
    assert found[: len(ranges)] == [
        content[start : len(content) if length < 0 else start + length] for start, length in ranges
    ]
    assert found[len(ranges) :] == [None] * len(outside)


def test_a_shard_that_was_replaced_is_opened_again(tmp_path):
    path = tmp_path / "shard"
    for content in (b"first", b"secnd", b"third and longer"):
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").replace(path)
        assert read([path], [1], [4]) == [content[1:5]]


def test_more_shards_than_are_kept_open_in_many_threads(tmp_path):
    paths = [tmp_path / str(number) for number in range(150)]
    for number, path in enumerate(paths):
        path.write_bytes(b"%04d" % number)
    dataset = tf.data.Dataset.range(600).map(
        lambda k: read_files(
            tf.gather(tf.constant([str(path) for path in paths]), [k % 150, (k * 7) % 150]),
            tf.constant([0, 2], tf.int64),
            tf.constant([4, 2], tf.int64),
        ),
        num_parallel_calls=8,
    )
    before = len(os.listdir("/proc/self/fd"))
    for k, (contents, ok) in enumerate(dataset.as_numpy_iterator()):
        assert ok.all()
        assert contents.tolist() == [b"%04d" % (k % 150), b"%02d" % (k * 7 % 150 % 100)]
    assert len(os.listdir("/proc/self/fd")) < before + 100


def test_other_storages(way):
    root = f"ram://read_files/{os.getpid()}/{way}"
    tf.io.gfile.makedirs(f"{root}/folder")
    with tf.io.gfile.GFile(f"{root}/file", "wb") as file:
        file.write(b"in memory\0")
    paths = [f"{root}/file", f"{root}/missing", f"{root}/folder", "", "nosuch://bucket/file"]
    assert read(paths) == [b"in memory\0", None, None, None, None]
    offsets, lengths = [3, 5, 5, 0, 0], [6, 5, 6, -1, 3]
    paths = [f"{root}/file"] * 4 + [f"{root}/missing"]
    assert read(paths, offsets, lengths) == [b"memory", b"mory\0", None, b"in memory\0", None]


def test_every_pass_of_a_pipeline_reads_again(tmp_path):
    path = tmp_path / "file"
    paths = tf.constant([str(path)])
    dataset = tf.data.Dataset.range(2).map(lambda k: read_files(tf.gather(paths, [k // 2])))
    for content in (None, b"first", b"second"):
        if content is not None:
            path.write_bytes(content)
        found = [contents[0] if ok[0] else None for contents, ok in dataset.as_numpy_iterator()]
        assert found == [content] * 2


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory):
    """A library that makes reading and opening of files fail by their names; see failing_reads.c."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: apt-get install gcc")
    library = tmp_path_factory.mktemp("preloaded") / "failing_reads.so"
    source = str(HERE / "failing_reads.c")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, source, "-ldl"], check=True
    )
    return library


def run(code, preloaded, *arguments):
    ended = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "LD_PRELOAD": str(preloaded), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout)


FAILING = """
import json, sys
from functools import partial
import tensorflow as tf
from distxcept.data import decode
from distxcept.data.op import plain
pauses = (0.01, 0.02, 0.03, 0.04)
decode.RETRY_SECONDS = pauses
plain.read_with_retries = partial(plain.read_with_retries, pauses=pauses)
names = json.loads(sys.argv[1])
paths = tf.constant([f"{sys.argv[2]}/{name}" for name in names])
lengths = tf.constant([4 if name.endswith("range") else -1 for name in names], tf.int64)
contents, ok = decode.read_files(paths, tf.zeros_like(lengths), lengths)
print(json.dumps({name: bool(good) for name, good in zip(names, ok.numpy())}))
assert all((content == b"good") == good for content, good in zip(contents.numpy(), ok.numpy()))
"""
PASSING = [
    "EIO",
    "ESTALE",
    "ETIMEDOUT",
    "ENOLINK",
    "EREMOTEIO",
    "ENETUNREACH",
    "EHOSTDOWN",
    "ECONNRESET",
    "EBUSY",
]


def test_errors_that_pass_are_retried_and_others_are_not(tmp_path, preloaded):
    expected = {"whole": True, "range": True}
    for how in ("read", "open"):
        for name in [*PASSING, *(["EMFILE", "ENFILE"] if how == "open" else [])]:
            number = getattr(errno, name)
            for times, ok in ((4, True), (5, False)):
                expected |= {f"failing-{how}-{number}-{times}-{kind}": ok for kind in ("whole", "range")}
        for name in ("EACCES", "EPERM", "ENXIO", "EINVAL"):
            expected |= {
                f"failing-{how}-{getattr(errno, name)}-1-{kind}": False for kind in ("whole", "range")
            }
    for name in expected:
        (tmp_path / name).write_bytes(b"good")
    assert run(FAILING, preloaded, json.dumps([*expected]), tmp_path) == expected


CLOSED = """
import json, sys, time
import tensorflow as tf
from distxcept.data import decode
decode.RETRY_SECONDS = (60.0,)
paths = tf.constant([sys.argv[1]])
dataset = tf.data.Dataset.range(2).map(lambda k: decode.read_files(tf.gather(paths, [k // 2])), num_parallel_calls=2)
iterator = iter(dataset.prefetch(2))
time.sleep(2)
begun = time.monotonic()
del iterator
print(json.dumps(time.monotonic() - begun))
"""


def test_a_pipeline_that_is_closed_does_not_sit_out_the_pauses(tmp_path, preloaded, way):
    if way == "python":
        pytest.skip("Python is not interrupted in a pause")
    path = tmp_path / f"failing-read-{errno.EIO}-1000"
    path.write_bytes(b"never read")
    begun = time.monotonic()
    assert run(CLOSED, preloaded, path) < 5
    assert time.monotonic() - begun < 45


STAGES = """
import json, sys, time
import tensorflow as tf
from distxcept.data import decode
from distxcept.data.op import plain
from functools import partial
tf.config.experimental.enable_op_determinism()
decode.RETRY_SECONDS = (3.0,)
plain.read_with_retries = partial(plain.read_with_retries, pauses=(3.0,))
def read(k):
    return decode.read_files(tf.strings.join([sys.argv[1], tf.strings.as_string(tf.range(k, k + 1))]))
begun = time.monotonic()
list(tf.data.Dataset.range(8).map(read, num_parallel_calls=8))
print(json.dumps(time.monotonic() - begun))
"""


def test_calls_run_in_parallel_where_operations_are_deterministic(tmp_path, preloaded):
    """TensorFlow runs operations that have state one by one then; 8 pauses take 24 seconds."""
    path = tmp_path / f"failing-read-{errno.EIO}-1-"
    for number in range(8):
        path.with_name(f"{path.name}{number}").write_bytes(b"good")
    assert 3 <= run(STAGES, preloaded, path) < 15


def test_want_of_memory_fails_the_operation_and_not_the_process(tmp_path):
    """And not the sample: it says nothing about that."""
    code = """
import os, resource, sys
import numpy as np, tensorflow as tf
from distxcept.data import op
from distxcept.data.decode import read_files
assert (op.library() is None) == (os.environ.get("DISTXCEPT_OP") == "off")
path = sys.argv[1]
read_files = tf.function(read_files)
read_files(tf.constant([path + "small"]))
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + 100 * 2**20, resource.RLIM_INFINITY))
try:
    print(read_files(tf.constant([path + "large"]))[1])
except tf.errors.ResourceExhaustedError:
    print("exhausted")
resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY,) * 2)
print(read_files(tf.constant([path + "large"]))[1].numpy())
"""
    (tmp_path / "small").write_bytes(b"x")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(400 * 2**20)
    ended = subprocess.run(
        [sys.executable, "-c", code, f"{tmp_path}/"],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.stdout.split("\n")[:2] == ["exhausted", "[ True]"], ended.stderr[-2000:]


def test_checksums_are_those_of_tfrecord():
    contents = [b"", b"123456789", bytes(range(256)) * 1000]
    sums = checksums(tf.constant(contents)).numpy().tolist()
    assert sums == [google_crc32c.value(content) for content in contents]
    assert sums[1] == 0xE3069283  # the check value of CRC-32C
