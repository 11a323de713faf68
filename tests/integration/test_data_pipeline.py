"""The pipeline on real files: the same bits for every rank, micro batch and thread count, and nothing kills it."""

import time

import numpy as np
import pytest
from PIL import Image

from distxcept.batching import plan_batches
from distxcept.config.schema import Augment, Crop, FolderSource, SyntheticSource
from distxcept.data import batches as batches_module
from distxcept.data import pipeline
from distxcept.data.pipeline import updates
from distxcept.data.sources import open_source

SIZE = 71
AUGMENT = Augment(flip=True, crop=Crop())


def write_images(root, count=23, classes=3, seed=0):
    """JPEG files of various sizes, some of them so large that a smaller JPEG scale covers the target."""
    random = np.random.default_rng(seed)
    for number in range(count):
        folder = root / f"class_{number % classes}"
        folder.mkdir(parents=True, exist_ok=True)
        height, width = random.integers(60, 400, 2)
        coarse = random.integers(0, 255, (6, 8, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((int(width), int(height)), Image.Resampling.BICUBIC)
        image.save(folder / f"{number:03d}.jpg", quality=90)
    return root


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    root = write_images(tmp_path_factory.mktemp("images"))
    return open_source(FolderSource(kind="folder", path=str(root)))


def plan_of(source, **changes):
    sizes = {"global_batch": 8, "virtual_batch": 2, "micro_batch": 2, "replicas": 1, **changes}
    return plan_batches(samples=len(source), **sizes)


def collect(source, plan, replicas=None, **options):
    """(epoch, update) → sample index → (pixels, label), over the given replicas."""
    options = {"seed": 1, "augment": AUGMENT, "epochs": 1, "image_size": SIZE, **options}
    seen = {}
    with updates(source, plan, replicas=replicas or range(plan.replicas), **options) as batches:
        for batch in batches:
            here = seen.setdefault((batch.epoch, batch.update), {})
            for replica in batch.replicas:
                arrays = [part.numpy() for part in (replica.indices, replica.images, replica.labels)]
                for index, image, label in zip(*(a.reshape(-1, *a.shape[2:]) for a in arrays), strict=True):
                    if index >= 0:
                        assert index not in here
                        here[int(index)] = (image.tobytes(), int(label))
    return seen


def test_shapes_types_and_short_last_update(source):
    plan = plan_of(source, replicas=3)
    with updates(
        source, plan, replicas=range(3), image_size=SIZE, seed=1, augment=AUGMENT, epochs=1
    ) as batches:
        got = list(batches)
    assert [batch.real_samples for batch in got] == [8, 8, 7]
    for batch in got:
        for number, replica in enumerate(batch.replicas):
            block = plan.block(batch.update, number)
            assert replica.first_virtual == block.start
            assert replica.images.shape == (len(block), 2, SIZE, SIZE, 3)
            assert replica.images.dtype == "uint8"
            assert replica.labels.dtype == "int32"
            assert replica.weights.dtype == "float32"
            assert replica.indices.dtype == "int64"
            assert "CPU" in replica.images.device
            assert np.array_equal(replica.weights, (replica.indices.numpy() >= 0).astype(np.float32))
    last = got[-1].replicas[-1]
    assert last.indices.numpy()[-1, -1] == -1
    assert not last.images.numpy()[-1, -1].any()


def test_the_next_update_goes_to_the_devices_of_its_replicas(source, monkeypatch):
    went = []

    def to_tensors(slots, device):
        went.append(device)
        return batches_module.to_tensors(slots, "CPU:0")

    monkeypatch.setattr(pipeline, "to_tensors", to_tensors)
    reading = updates(
        source,
        plan_of(source, replicas=2),
        replicas=range(2),
        image_size=SIZE,
        seed=1,
        epochs=1,
        devices=lambda: ["GPU:0", "GPU:1"],
    )
    with reading as batches:
        next(batches)
        while any(one.tasks_left for one in batches._pending):
            time.sleep(0.01)
        with batches._lock:  # whoever read the last sample has asked for the delivery
            pass
        batches._delivery.submit(int).result()
        assert went == ["GPU:0", "GPU:1"] * 2  # the next one; the third is read, but waits on the host
        next(batches)
        assert len(list(batches)) == 1
    assert went == ["GPU:0", "GPU:1"] * 3


def test_a_replica_may_be_left_with_nothing(source):
    plan = plan_of(source, global_batch=4, replicas=3)
    with updates(source, plan, replicas=range(3), image_size=SIZE, seed=1, epochs=1) as batches:
        first = next(batches)
    assert sorted(replica.images.shape[0] for replica in first.replicas) == [0, 1, 1]


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"micro_batch": 8}, {}),
        ({"replicas": 2}, {}),
        ({"replicas": 3}, {"workers": 5}),
        ({"replicas": 2, "shares": (3, 1)}, {"workers": 1}),
        ({"replicas": 4}, {"host_memory": "250KB", "workers": 1}),
    ],
)
def test_the_same_bits_for_every_plan(source, changes, options):
    assert collect(source, plan_of(source, **changes), **options) == collect(source, plan_of(source))


def test_ranks_together_see_what_one_process_sees(source):
    whole = collect(source, plan_of(source, replicas=3))
    parts = [collect(source, plan_of(source, replicas=3), replicas=range(k, k + 1)) for k in range(3)]
    merged = {point: {k: v for part in parts for k, v in part.get(point, {}).items()} for point in whole}
    assert merged == whole


def test_resume_gives_the_rest_and_epochs_differ(source):
    plan = plan_of(source)
    whole = collect(source, plan, epochs=2)
    rest = collect(source, plan, epochs=1, first_epoch=0, first_update=2) | collect(
        source, plan, epochs=1, first_epoch=1
    )
    assert rest == {point: samples for point, samples in whole.items() if point >= (0, 2)}
    first, second = (
        {k: v for point, samples in whole.items() if point[0] == epoch for k, v in samples.items()}
        for epoch in (0, 1)
    )
    assert first.keys() == second.keys() == set(range(len(source)))
    assert first != second


def test_validation_is_the_centre_in_natural_order(source):
    plan = plan_of(source)
    seen = collect(source, plan, seed=None, augment=None)
    assert list(seen[0, 0]) == list(range(8))
    assert seen == {
        (0, update): samples
        for (_, update), samples in collect(source, plan, seed=None, augment=None, first_epoch=5).items()
    }


def test_the_centre_crop_shows_the_middle(tmp_path):
    picture = np.zeros((100, 300, 3), np.uint8)
    picture[:, 100:200] = (200, 40, 90)
    (tmp_path / "a").mkdir()
    Image.fromarray(picture).save(tmp_path / "a" / "x.png")
    source = open_source(FolderSource(kind="folder", path=str(tmp_path)))
    seen = collect(source, plan_of(source, global_batch=2, micro_batch=2), seed=None, augment=None)
    pixels = np.frombuffer(seen[0, 0][0][0], np.uint8).reshape(SIZE, SIZE, 3)
    assert (pixels == (200, 40, 90)).all()


def test_bad_images_weigh_nothing_and_are_reported(tmp_path):
    root = write_images(tmp_path, count=7)
    whole = (root / "class_0" / "000.jpg").read_bytes()
    for name, content in {"e": b"", "t": whole[: len(whole) // 2], "n": b"text, not an image"}.items():
        (root / "class_1" / f"{name}.jpg").write_bytes(content)
    source = open_source(FolderSource(kind="folder", path=str(root)))
    (root / "class_2" / "002.jpg").unlink()
    bad = []
    plan = plan_of(source, global_batch=10, micro_batch=2)
    with updates(
        source,
        plan,
        replicas=range(1),
        image_size=SIZE,
        seed=3,
        epochs=1,
        on_bad=lambda index, path, reason: bad.append((index, path, reason)),
    ) as batches:
        (batch,) = list(batches)
    assert {(path.rsplit("/", 1)[1], reason) for _, path, reason in bad} == {
        ("e.jpg", "empty file"),
        ("t.jpg", "truncated JPEG: no end marker"),
        ("n.jpg", "not a JPEG, PNG, GIF, BMP or WebP image"),
        ("002.jpg", "cannot be read: No such file or directory"),
    }
    replica = batch.replicas[0]
    zero = {int(i) for i in replica.indices.numpy()[replica.weights.numpy() == 0]}
    assert zero == {index for index, _, _ in bad}
    assert not replica.images.numpy()[replica.weights.numpy() == 0].any()
    assert batch.real_samples == 10


def test_synthetic_is_the_same_everywhere_and_differs_between_splits():
    section = SyntheticSource(kind="synthetic", samples=20, classes=4)
    train, again = open_source(section), open_source(section)
    validation = open_source(section, split="validation")
    assert train.digest() == again.digest() != validation.digest()
    pixels = train.read(7).pixels
    assert np.array_equal(pixels, again.read(7).pixels)
    assert not np.array_equal(pixels, validation.read(7).pixels)
    assert int(pixels.astype(np.int64).sum()) == 4187389  # fixed: the same on every machine


def test_closing_early_stops_the_threads(source):
    batches = updates(source, plan_of(source), replicas=range(1), image_size=SIZE, seed=1)
    next(batches)
    batches.close()
    batches.close()
    assert list(batches) == []
