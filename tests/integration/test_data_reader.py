"""Transient errors, caches, and what the pipeline does with labels out of range."""

import errno
import shutil

import numpy as np
import pytest
from test_data_pipeline import AUGMENT, SIZE, collect, plan_of, write_images

from distxcept.config.schema import ArraysSource, Augment, DataSection, FolderSource
from distxcept.data import cache as cache_module
from distxcept.data.augment import PLAIN
from distxcept.data.cache import open_cache
from distxcept.data.options import pipeline_options
from distxcept.data.patience import read_patiently, reason_of
from distxcept.data.pipeline import updates
from distxcept.data.reader import Reader
from distxcept.data.sources import Sample, open_source
from distxcept.errors import DataError


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    root = write_images(tmp_path_factory.mktemp("images"))
    return open_source(FolderSource(kind="folder", path=str(root)))


class Flaky:
    def __init__(self, *errors):
        self.errors, self.slept = list(errors), []

    def read(self):
        if self.errors:
            raise self.errors.pop(0)
        return Sample(encoded=b"here")

    def run(self):
        return read_patiently(self.read, (0.1, 0.5, 2.0), self.slept.append)


def test_errors_that_pass_are_waited_out():
    flaky = Flaky(OSError(errno.EIO, "x"), TimeoutError(errno.ETIMEDOUT, "x"), OSError(errno.ESTALE, "x"))
    assert flaky.run().encoded == b"here"
    assert flaky.slept == [0.1, 0.5, 2.0]


def test_errors_that_stay_are_not():
    flaky = Flaky(FileNotFoundError(errno.ENOENT, "x"))
    with pytest.raises(FileNotFoundError):
        flaky.run()
    assert flaky.slept == []
    for_ever = Flaky(*[OSError(errno.EIO, "Input/output error")] * 9)
    with pytest.raises(OSError, match="Input/output") as caught:
        for_ever.run()
    assert for_ever.slept == [0.1, 0.5, 2.0]
    assert reason_of(caught.value) == "cannot be read: Input/output error"


def test_a_reader_retries(source, monkeypatch):
    left = [OSError(errno.EIO, "x")] * 2
    read = source.read
    monkeypatch.setattr(source, "read", lambda k: (_ for _ in ()).throw(left.pop()) if left else read(k))
    reader = Reader(source=source, seed=1, augment=None, retry_seconds=(0, 0))
    out = np.zeros((SIZE, SIZE, 3), np.uint8)
    (spent,) = reader.fill([3], [PLAIN], [out])
    assert spent.stored_pixels > 0
    assert out.any()
    assert left == []


def test_labels_out_of_range_are_bad(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((4, 80, 80, 3), np.uint8), labels=np.array([0, 1, -3, 1]))
    source = open_source(ArraysSource(kind="arrays", path=str(tmp_path / "a.npz")))
    bad = []
    with updates(
        source,
        plan_of(source, global_batch=4, micro_batch=4),
        replicas=range(1),
        image_size=SIZE,
        seed=1,
        epochs=1,
        on_bad=lambda *found: bad.append(found),
    ) as batches:
        (batch,) = batches
    assert bad == [(2, f"{tmp_path}/a.npz[2]", "label out of range: there are 2 classes")]
    replica = batch.replicas[0]
    assert replica.weights.numpy().sum() == 3
    assert replica.labels.numpy().min() == 0


SQUARE = Augment(flip=True, rotate=10.0)


@pytest.mark.parametrize("where", ["memory", "folder"])
def test_a_cache_of_squares_gives_the_same_bits(source, tmp_path, where, monkeypatch):
    place = "memory" if where == "memory" else str(tmp_path / "cache")
    kept = open_cache(place, source, image_size=SIZE, whole=False, max_pixels=10**8)
    plain = collect(source, plan_of(source), augment=SQUARE, epochs=2)
    assert collect(source, plan_of(source), augment=SQUARE, epochs=2, cache=kept) == plain
    monkeypatch.setattr(source, "read", lambda index: pytest.fail("read although cached"))
    assert collect(source, plan_of(source), augment=SQUARE, epochs=2, cache=kept) == plain
    if where == "folder":
        again = open_cache(place, source, image_size=SIZE, whole=False, max_pixels=10**8)
        assert collect(source, plan_of(source), augment=SQUARE, epochs=2, cache=again) == plain


def test_a_cache_of_whole_images_is_close_and_the_same_for_every_plan(source):
    def cached(**changes):
        kept = open_cache("memory", source, image_size=SIZE, whole=True, max_pixels=10**8)
        return collect(source, plan_of(source, **changes), epochs=1, cache=kept)

    kept, plain = cached(), collect(source, plan_of(source), epochs=1)
    assert kept == cached(replicas=3, micro_batch=4)
    difference = [
        np.abs(
            np.frombuffer(kept[point][k][0], np.uint8).astype(int)
            - np.frombuffer(plain[point][k][0], np.uint8)
        ).mean()
        for point in plain
        for k in plain[point]
    ]
    assert max(difference) < 3
    assert AUGMENT.crop is not None


def test_a_damaged_cache_is_decoded_again(source, tmp_path):
    place = str(tmp_path / "cache")
    kept = open_cache(place, source, image_size=SIZE, whole=False, max_pixels=10**8)
    plain = collect(source, plan_of(source), augment=SQUARE, cache=kept)
    (store,) = (tmp_path / "cache").glob("*/pixels.bin")
    with store.open("r+b") as file:
        file.seek(SIZE * SIZE * 3 * 5 + 100)
        file.write(b"\xaa" * 50)
    assert collect(source, plan_of(source), augment=SQUARE, cache=kept) == plain


def test_a_cache_that_does_not_fit_is_refused_with_numbers(source, tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "free_memory", lambda: 100_000)
    with pytest.raises(DataError, match=r"take 339\.\d KiB of memory, and 97\.7 KiB is free"):
        open_cache("memory", source, image_size=SIZE, whole=False, max_pixels=10**8)
    usage = shutil.disk_usage(tmp_path)._replace(free=100_000)
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DataError, match=r"of disk, and 97\.7 KiB is free"):
        open_cache(str(tmp_path / "c"), source, image_size=SIZE, whole=False, max_pixels=10**8)
    assert open_cache("none", source, image_size=SIZE, whole=False, max_pixels=10**8) is None


def test_stats_and_waiting(source):
    with updates(source, plan_of(source), replicas=range(1), image_size=SIZE, seed=1, epochs=1) as batches:
        waits = [batch.wait_seconds for batch in batches]
        stats = batches.take_stats()
    assert stats.samples == len(source)
    assert stats.consumer_wait_seconds == pytest.approx(sum(waits))
    assert stats.busy_seconds > 0
    assert 0 <= stats.storage_share <= 1
    assert stats.stored_pixels / stats.samples > 60 * 60
    assert batches.take_stats().samples == 0


def test_options_follow_the_config(source, tmp_path):
    data = DataSection(
        train=FolderSource(kind="folder", path="x"),
        workers=3,
        host_memory="1GiB",
        max_pixels=5_000_000,
        cache="memory",
        augment=SQUARE,
    )
    options = pipeline_options(data, source, image_size=SIZE, training=True)
    plain = collect(source, plan_of(source), augment=SQUARE, max_pixels=5_000_000)
    assert collect(source, plan_of(source), **options) == plain
    assert (options["workers"], options["host_memory"]) == (3, "1GiB")
    validation = pipeline_options(data, source, image_size=SIZE, training=False)
    assert validation["augment"] is None
    assert validation["cache"] is None
