"""`Source.contents` in a graph: what `read` gives, sample by sample, for every kind, order and padding."""

import errno
import itertools
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from distxcept.config.schema import (
    ArraysSource,
    DataSection,
    FolderSource,
    ManifestSource,
    RecordsSource,
    SyntheticSource,
)
from distxcept.data import retry
from distxcept.data.decode import decode_whole, encode_raw
from distxcept.data.records.shard import encode_example, frame
from distxcept.data.sources import BadSample, Sample, Source, open_source, open_sources
from distxcept.data.sources.graph import with_tables
from distxcept.data.sources.paths import PathTable, take_paths
from distxcept.data.sources.split import Subset

NAMES = ["a/1.jpg", "a/deep/ä.JPEG", "a/z", "b/2.jpg", "b/x y.png", "c/\n"]
_fresh = itertools.count()


def contents_of(source, indices):
    """As a dataset computes it: (bytes, ok) for each index; the same with tables as elements and as constants."""
    numbers = tf.data.Dataset.from_tensors(tf.constant(indices, tf.int64))
    dataset = with_tables(numbers, source).map(lambda *both: source.contents(*both))
    contents, ok = next(iter(dataset))
    assert dataset.element_spec[0].shape == dataset.element_spec[1].shape == [len(indices)]
    found = list(zip(contents.numpy().tolist(), ok.numpy().tolist(), strict=True))
    if source.tables():
        again = next(iter(numbers.map(lambda indices: source.contents(indices))))
        assert list(zip(*(part.numpy().tolist() for part in again), strict=True)) == found
    return found


def content(number):
    """Zeros at the end are the first thing that a careless conversion loses; the last one is empty."""
    return b"" if number == len(NAMES) - 1 else b"\xff\xd8\0 image %d\0\0" % number


def put(root, name, data):
    path = f"{root}/{name}"
    tf.io.gfile.makedirs(os.path.dirname(path))
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)  # in ram:// writing goes on at the end
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(data)


def write_records(root):
    for shard, numbers in enumerate(([0, 1, 2, 3], [4, 5])):
        records = [
            encode_example({"image/class/label": min(n, 2), "image/encoded": content(n)}) for n in numbers
        ]
        put(root, f"train-{shard:05d}-of-00002", b"".join(r.join(frame(r)) for r in records))


@pytest.fixture(params=["local", "remote"])
def place(request, tmp_path):
    return str(tmp_path) if request.param == "local" else f"ram://contents{next(_fresh)}"


def open_kind(kind, place):
    if kind == "records":
        write_records(place)
        return open_source(RecordsSource(kind="records", path=place))
    for number, name in enumerate(NAMES):
        put(place, name, content(number))
    if kind == "folder":
        return open_source(FolderSource(kind="folder", path=place))
    lines = "".join(f'"{name}",{name[0]}\n' for name in NAMES)
    put(place, "list.csv", f"path,label\n{lines}".encode())
    return open_source(ManifestSource(kind="manifest", path=f"{place}/list.csv"))


@pytest.mark.parametrize("kind", ["folder", "manifest", "records"])
def test_files_and_ranges(kind, place):
    source = open_kind(kind, place)
    assert len(source) == 6
    assert not source.raw
    indices = [5, 0, -1, 3, 3, 1, -1, 2, 4, 0]
    wanted = [(source.read(k).encoded, True) if k >= 0 else (b"", False) for k in indices]
    assert contents_of(source, indices) == wanted
    assert [source.read(k).encoded for k in range(6)] == [content(k) for k in range(6)]
    assert contents_of(source, [-1, -1]) == [(b"", False)] * 2


def test_a_remote_tree_is_listed_like_a_local_one(tmp_path):
    trees = [str(tmp_path), f"ram://trees{next(_fresh)}"]
    for root in trees:
        for name in [*NAMES, "a/notes.txt", "a/.hidden.jpg", ".git/x.jpg", "readme.md", "b/.deep/x.jpg"]:
            put(root, name, b"x")
    local, remote = (open_source(FolderSource(kind="folder", path=root)) for root in trees)
    assert remote.digest() == local.digest()
    assert list(remote.identities()) == list(local.identities())
    assert remote.class_names == local.class_names == ("a", "b", "c")
    assert remote.name(1) == f"{trees[1]}/a/deep/ä.JPEG"
    manifests = []
    for root in trees:
        put(root, "list.csv", b"path,label\nb/2.jpg,x\na/1.jpg,y\n")
        manifests.append(open_source(ManifestSource(kind="manifest", path=f"{root}/list.csv")))
    assert manifests[0].digest() == manifests[1].digest()


def test_names_that_are_not_text(tmp_path):
    odd = os.path.join(os.fsencode(tmp_path), b"a", b"\xff\xfe.jpg")
    os.mkdir(os.path.dirname(odd))
    with open(odd, "wb") as file:
        file.write(b"odd")
    assert contents_of(open_source(FolderSource(kind="folder", path=str(tmp_path))), [0]) == [(b"odd", True)]


def test_a_manifest_may_name_files_anywhere(tmp_path):
    put(tmp_path / "other", "2.jpg", b"two")
    put(tmp_path / "here", "1.jpg", b"one")
    place = f"ram://anywhere{next(_fresh)}"
    put(place, "3.jpg", b"three")
    rows = ["1.jpg", tmp_path / "other" / "2.jpg", f"{place}/3.jpg", "./1.jpg"]
    (tmp_path / "here" / "m.csv").write_text("path,label\n" + "".join(f"{row},x\n" for row in rows))
    source = open_source(ManifestSource(kind="manifest", path=str(tmp_path / "here" / "m.csv")))
    wanted = [b"one", b"two", b"three", b"one"]
    assert contents_of(source, [0, 1, 2, 3, -1]) == [*((data, True) for data in wanted), (b"", False)]
    assert [source.read(k).encoded for k in range(4)] == wanted
    assert source.name(2) == f"{place}/3.jpg"


@pytest.mark.parametrize("kind", ["synthetic", "arrays"])
def test_pixels(kind, tmp_path):
    if kind == "synthetic":
        source = open_source(SyntheticSource(kind="synthetic", samples=5, classes=2))
    else:
        images = np.random.default_rng(0).integers(0, 256, (5, 4, 6)).astype(np.uint8)
        np.savez(tmp_path / "a.npz", images=images, labels=np.array([0, 1, -1, 1, 0]))
        source = open_source(ArraysSource(kind="arrays", path=str(tmp_path / "a.npz")))
    assert source.raw
    found = contents_of(source, [4, -1, 1, 2, 4])
    for index, (data, ok) in zip([4, -1, 1, 2, 4], found, strict=True):
        usable = index >= 0 and source.labels[index] >= 0
        assert ok == usable
        assert data == (encode_raw(source.read(index).pixels) if usable else b"")


def test_a_part_of_a_source(tmp_path):
    for number in range(40):
        put(tmp_path, f"{'ab'[number % 2]}/{number}.jpg", b"image %d\0" % number)
    folder = FolderSource(kind="folder", path=str(tmp_path))
    for part in open_sources(DataSection(train=folder, validation_fraction=0.3)):
        indices = [len(part) - 1, -1, 0, 3, 3]
        wanted = [(part.read(k).encoded, True) if k >= 0 else (b"", False) for k in indices]
        assert contents_of(part, indices) == wanted
        assert not part.raw
    arrays = DataSection(
        train=SyntheticSource(kind="synthetic", samples=20, classes=2), validation_fraction=0.5
    )
    part = open_sources(arrays)[0]
    assert part.raw
    assert contents_of(part, [1]) == [(encode_raw(part.read(1).pixels), True)]


def test_files_that_cannot_be_read_have_no_content(tmp_path):
    source = open_kind("folder", str(tmp_path))
    os.unlink(tmp_path / "a" / "1.jpg")
    os.unlink(tmp_path / "a" / "z")
    os.mkdir(tmp_path / "a" / "z")
    assert contents_of(source, [0, 1, 2, 3]) == [
        (b"", False),
        (content(1), True),
        (b"", False),
        (content(3), True),
    ]
    put(tmp_path, "a/1.jpg", b"back")
    assert contents_of(source, [0]) == [(b"back", True)]


def test_records_that_cannot_be_used_have_no_content(place):
    records = [
        encode_example({"image/class/label": 0, "image/encoded": b"good 0"}),
        encode_example({"image/class/label": 1}),
        encode_example({"image/encoded": b"no label"}),
        encode_example({"image/class/label": 1, "image/encoded": b"good 3"}),
        encode_example({"image/class/label": 5, "image/encoded": b"no class"}),
    ]
    framed = [record.join(frame(record)) for record in records]
    damaged = framed[0][:-8] + b"\xee" + framed[0][-7:]
    put(place, "train-00000-of-00001", b"".join([*framed, damaged]))
    source = open_source(RecordsSource(kind="records", path=place), class_names=("0", "1"))
    wanted = [(b"good 0", True), (b"", False), (b"", False), (b"good 3", True), (b"", False), (b"", False)]
    assert contents_of(source, range(6)) == wanted
    with pytest.raises(BadSample, match="record with a wrong CRC"):
        source.read(5)


def test_shards_that_changed_after_indexing_have_no_content_there(place):
    write_records(place)
    source = open_source(RecordsSource(kind="records", path=place))
    path = f"{place}/train-00000-of-00002"
    with tf.io.gfile.GFile(path, "rb") as file:
        data = file.read()
    put(place, "train-00000-of-00002", data.replace(b"image 1", b"imaqe 1"))
    good = [(content(k), True) for k in range(6)]
    for _ in range(2):  # compared again until it is right
        assert contents_of(source, [1, 0, 1]) == [(b"", False), good[0], (b"", False)]
    assert contents_of(source, range(6)) == [good[0], (b"", False), *good[2:]]
    if not place.startswith("ram:"):  # what is far away stays open
        put(place, "train-00000-of-00002", data[: data.index(b"image 2") + 3])
        assert contents_of(source, range(6)) == [*good[:2], (b"", False), (b"", False), *good[4:]]
        shutil.rmtree(place)
        assert [ok for _, ok in contents_of(source, range(6))] == [False] * 6


class Custom(Source):
    """What a user writes: length, labels, name, read and digest."""

    class_names = ("x",)

    def __init__(self, samples):
        self._samples = samples
        self.asked = []

    def __len__(self):
        return len(self._samples)

    @property
    def labels(self):
        return np.zeros(len(self._samples), np.int32)

    def name(self, index):
        return str(index)

    def read(self, index):
        self.asked.append(index)
        found = self._samples[index]
        if isinstance(found, list):
            found = found.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    def digest(self):
        return "custom"


PIXELS = np.random.default_rng(1).integers(0, 256, (5, 7, 3)).astype(np.uint8)


def test_a_custom_source_may_mix_files_and_pixels():
    png = contents_of(Custom([Sample(pixels=PIXELS)]), [0])[0][0]
    mixed = [Sample(encoded=png), Sample(pixels=PIXELS), Sample(pixels=PIXELS[:, ::-1])]
    encoded, raw = Custom(mixed), Custom(mixed)
    raw.raw = True
    found = contents_of(encoded, [0, 1, 2])
    assert found[0] == (png, True)
    for (data, ok), pixels in zip(found, [PIXELS, PIXELS, PIXELS[:, ::-1]], strict=True):
        assert ok
        assert np.array_equal(decode_whole(Sample(encoded=data), max_pixels=10**6), pixels)
    wanted = [encode_raw(PIXELS), encode_raw(PIXELS), encode_raw(np.ascontiguousarray(PIXELS[:, ::-1]))]
    assert contents_of(raw, [0, 1, 2]) == [(data, True) for data in wanted]


def test_whatever_happens_to_a_sample_is_its_own_matter():
    source = Custom(
        [
            *(Sample(encoded=b"good"), BadSample("bad"), FileNotFoundError(errno.ENOENT, "x"), KeyError("x")),
            *(Sample(), Sample(pixels=np.zeros((2, 2), np.float32)), Sample(encoded=b"too")),
        ]
    )
    assert contents_of(source, [6, 5, 4, 3, 2, 1, 0, -1]) == [
        (b"too", True),
        *[(b"", False)] * 5,
        (b"good", True),
        (b"", False),
    ]
    assert -1 not in source.asked


@pytest.fixture
def no_pauses(monkeypatch):
    slept = []
    monkeypatch.setattr(retry.time, "sleep", slept.append)
    for function in (retry.read_with_retries, retry.retry_without_memory):
        monkeypatch.setattr(function, "__defaults__", (retry.RETRY_SECONDS, slept.append))
    return slept


def test_errors_that_pass_are_waited_out(no_pauses):
    source = Custom([[OSError(errno.EIO, "x"), OSError(errno.ESTALE, "x"), Sample(encoded=b"late")]])
    assert contents_of(source, [0]) == [(b"late", True)]
    assert no_pauses == [0.1, 0.5]
    stubborn = Custom([[OSError(errno.EIO, "x")] * 9])
    assert contents_of(stubborn, [0]) == [(b"", False)]
    assert len(stubborn.asked) == 5


def test_want_of_memory_is_waited_out_and_is_never_a_bad_sample(no_pauses):
    source = Custom([[MemoryError(), MemoryError(), Sample(encoded=b"late")]])
    assert contents_of(source, [0]) == [(b"late", True)]
    assert no_pauses == [0.1, 0.5]
    with pytest.raises(tf.errors.ResourceExhaustedError):
        contents_of(Custom([[MemoryError()] * 9]), [0])


def test_labels_out_of_range_are_not_read():
    labels = np.array([0, -1, 0], np.int32)
    kind = type("Labelled", (Custom,), {"labels": property(lambda self: labels)})
    source = kind([Sample(encoded=b"x")] * 3)
    assert contents_of(source, [0, 1, 2]) == [(b"x", True), (b"", False), (b"x", True)]
    assert source.asked == [0, 2]


def test_many_threads_may_ask_at_once(tmp_path):
    source = open_kind("folder", str(tmp_path))
    numbers = tf.data.Dataset.range(6 * 50).map(lambda k: tf.stack([k % 6, (k + 1) % 6]))
    found = list(numbers.map(source.contents, num_parallel_calls=4))
    wanted = [[content(k % 6), content((k + 1) % 6)] for k in range(300)]
    assert [contents.numpy().tolist() for contents, _ in found] == wanted
    assert threading.active_count() < 100


@pytest.mark.parametrize("kind", ["folder", "records", "custom", "part"])
def test_the_graph_has_no_state(kind, tmp_path):
    """Else `tf.data` would read one virtual batch after the other where operations have to be deterministic."""
    source = (
        Custom([Sample(encoded=b"x")])
        if kind == "custom"
        else open_kind(kind.replace("part", "folder"), str(tmp_path))
    )
    if kind == "part":
        source = Subset(source, np.array([3, 1]))
    traced = (
        tf.function(source.contents).get_concrete_function(tf.TensorSpec([2], tf.int64)).graph.as_graph_def()
    )
    nodes = [node for part in (traced.node, *(f.node_def for f in traced.library.function)) for node in part]
    assert len(nodes) > 2
    with_state = {node.op for node in nodes if op_def_registry.get(node.op).is_stateful}
    assert with_state <= {"Placeholder"}


def test_an_index_of_the_first_version_is_made_anew(tmp_path):
    write_records(str(tmp_path))
    section = RecordsSource(kind="records", path=str(tmp_path))
    wanted = open_source(section).digest()
    (head,) = tmp_path.glob(".distxcept-index-*.json")
    head.write_text(head.read_text().replace('"version": 2', '"version": 1'))
    assert open_source(section).digest() == wanted
    assert '"version": 2' in head.read_text()


class TestPathTable:
    ITEMS = (b"a", b"", b"longer than twenty-two bytes", b"\xff\0\n", b"z")

    def test_takes_items_in_a_graph(self):
        table = PathTable(self.ITEMS)
        take = tf.function(lambda indices: take_paths(table.tables, indices))
        assert take(tf.constant([4, 0, 1, 3, 2, 2, -1], tf.int64)).numpy().tolist() == [
            *(self.ITEMS[k] for k in (4, 0, 1, 3, 2, 2)),
            b"",
        ]
        assert list(table) == list(self.ITEMS)

    @pytest.mark.parametrize(
        ("items", "some"),
        [((b"a/b", b"c"), False), ((b"a", b"/c"), True), ((b"", b"gs://b/x"), True), ((b"a:/x",), False)],
    )
    def test_knows_of_paths_that_are_complete(self, items, some):
        assert PathTable(items).some_absolute is some


MEASURE = """
import numpy as np, tensorflow as tf
from distxcept.data.sources.folder import FolderSource
from distxcept.data.sources.graph import with_tables
from distxcept.data.sources.paths import PathTable

def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

def names(count):
    return (b"n%08d/n%08d_%d.JPEG" % (k // 1300, k // 1300, k % 1300) for k in range(count))

def use(count):
    source = FolderSource("/none", ("x",), PathTable(names(count)), np.zeros(count, np.int32))
    numbers = tf.data.Dataset.range(4).map(lambda k: tf.stack([k, count - 1 - k]))
    for _ in range(4):
        for _, ok in with_tables(numbers, source).map(lambda *both: source.contents(*both), num_parallel_calls=2):
            assert not ok.numpy().any()

use(10)
before = peak()
use(1_300_000)
print((peak() - before) / 1_300_000)
"""


def test_a_file_takes_little_memory():
    """With all that four datasets need of a table of the size of ImageNet."""
    ran = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) <= 200, ran.stdout
