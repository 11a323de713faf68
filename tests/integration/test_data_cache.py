"""Caches: the same bits as without one, never half an image, refused with the numbers where they do not fit."""

import itertools
import shutil

import numpy as np
import pytest
import tensorflow as tf
from test_dataset import SIZE, collect, plan_of, write_images

from distxcept.config.schema import ArraysSource, Augment, FolderSource
from distxcept.data import cache as cache_module
from distxcept.data.cache import open_cache
from distxcept.data.decode import decode_whole
from distxcept.data.sources import BadSample, open_source
from distxcept.errors import DataError

_fresh = itertools.count()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    root = write_images(tmp_path_factory.mktemp("images"))
    (root / "class_1" / "bad.jpg").write_bytes(b"\xff\xd8 not much of an image")
    return open_source(FolderSource(kind="folder", path=str(root)))


@pytest.fixture(params=["memory", "folder", "remote"])
def place(request, tmp_path):
    return {"memory": "memory", "folder": str(tmp_path / "cache")}.get(
        request.param, f"ram://cache{next(_fresh)}/x"
    )


def cached(place, source, whole=False, **changes):
    return open_cache(place, source, **{"image_size": SIZE, "whole": whole, "max_pixels": 10**8, **changes})


def two_epochs(source, **changes):
    plan = plan_of(source)
    return collect(source, plan, updates=2 * plan.updates_per_epoch, **changes)


SQUARE = Augment(flip=True, rotate=10.0)


def forbid_reading(source, monkeypatch, but=()):
    read = source.read
    monkeypatch.setattr(
        source, "read", lambda index: read(index) if index in but else pytest.fail("read although cached")
    )


def test_a_cache_of_squares_gives_the_same_bits(source, place, monkeypatch):
    kept, plain = cached(place, source), two_epochs(source, augment=SQUARE)
    assert two_epochs(kept, augment=SQUARE) == plain
    assert (kept.digest(), kept.class_names, len(kept)) == (source.digest(), source.class_names, len(source))
    bad = next(k for k in range(len(source)) if source.name(k).endswith("bad.jpg"))
    forbid_reading(source, monkeypatch, but=[bad])
    assert two_epochs(kept, augment=SQUARE) == plain
    if place != "memory":
        assert two_epochs(cached(place, source), augment=SQUARE) == plain
    with pytest.raises(BadSample, match="JPEG"):
        kept.read(bad)


def test_other_settings_have_a_cache_of_their_own(source, place):
    """The same place serves both sizes, and whole images too."""
    for _ in range(2):
        assert cached(place, source).read(0).pixels.shape == (SIZE, SIZE, 3)
        assert cached(place, source, image_size=40).read(0).pixels.shape == (40, 40, 3)
        smooth = cached(place, source, interpolation="bicubic").read(0).pixels
        assert not np.array_equal(smooth, cached(place, source).read(0).pixels)
        whole = cached(place, source, whole=True).read(0).pixels
        assert np.array_equal(whole, decode_whole(source.read(0), max_pixels=10**8))


def test_a_cache_of_whole_images_is_close_and_the_same_for_every_plan(source, place):
    def run(**changes):
        kept = cached(place, source, whole=True)
        first = collect(kept, plan_of(source, **changes))
        assert collect(kept, plan_of(source, **changes)) == first
        return first

    kept, plain = run(), collect(source, plan_of(source))
    assert kept == run(replicas=3, micro_batch=4)
    difference = [
        np.abs(
            np.frombuffer(kept[update][k][0], np.uint8).astype(int)
            - np.frombuffer(plain[update][k][0], np.uint8)
        ).mean()
        for update in plain
        for k in plain[update]
    ]
    assert max(difference) < 3
    assert any(difference)


def test_a_damaged_cache_is_decoded_again(source, tmp_path):
    kept = cached(str(tmp_path / "cache"), source)
    plain = collect(kept, plan_of(source), augment=SQUARE)
    (store,) = (tmp_path / "cache").glob("*/pixels.bin")
    with store.open("r+b") as file:
        file.seek(SIZE * SIZE * 3 * 5 + 100)
        file.write(b"\xaa" * 50)
    assert collect(kept, plan_of(source), augment=SQUARE) == plain


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-1], lambda data: data[:9], lambda data: b"\1" + data[1:]]
)
def test_a_damaged_object_is_decoded_again(source, spoil):
    where = f"ram://cache{next(_fresh)}"
    kept = cached(where, source)
    right = kept.read(0).pixels
    (path,) = (path for path in tf.io.gfile.glob(f"{where}/*/000000/*") if path.endswith("/000"))
    with tf.io.gfile.GFile(path, "rb") as file:
        data = file.read()
    tf.io.gfile.remove(path)
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(spoil(data))
    assert np.array_equal(kept.read(0).pixels, right)
    with tf.io.gfile.GFile(path, "rb") as file:
        assert file.read() == data


def test_a_cache_of_pixels_keeps_labels_out_of_range_bad(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (4, 80, 90, 3)).astype(np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=np.array([0, 1, -3, 1]))
    arrays = open_source(ArraysSource(kind="arrays", path=str(tmp_path / "a.npz")))
    plan = plan_of(arrays, global_batch=4, micro_batch=4)
    plain = collect(arrays, plan, augment=None)
    assert collect(cached("memory", arrays), plan, augment=None) == plain
    assert collect(cached("memory", arrays, whole=True), plan) == collect(arrays, plan)


def test_an_image_that_changed_its_size_is_used_but_not_kept(tmp_path):
    source = open_source(FolderSource(kind="folder", path=str(write_images(tmp_path, count=3))))
    kept = cached("memory", source, whole=True)
    (other,) = (tmp_path / "class_0").iterdir()
    other.write_bytes(next((tmp_path / "class_1").iterdir()).read_bytes())
    for _ in range(2):
        assert np.array_equal(kept.read(0).pixels, decode_whole(source.read(1), max_pixels=10**8))


def test_a_cache_that_does_not_fit_is_refused_with_numbers(source, tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "free_memory", lambda: 100_000)
    with pytest.raises(DataError, match=r"take 354\.\d KiB of memory, and 97\.7 KiB is free"):
        cached("memory", source)
    usage = shutil.disk_usage(tmp_path)._replace(free=100_000)
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DataError, match=r"of disk, and 97\.7 KiB is free"):
        cached(str(tmp_path / "c"), source)
    assert cached("none", source) is source


def test_a_place_that_cannot_be_used_is_refused(source, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match=r"data\.cache: .*file cannot be used"):
        cached(str(tmp_path / "file"), source)
    with pytest.raises(DataError, match=r"data\.cache: foo://.*no file system for foo://"):
        cached("foo://bucket/cache", source)
