"""The dataset on real files: the same bits for every rank, micro batch and thread count, and nothing kills it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import yaml
from PIL import Image

import distxcept
from distxcept.batching import plan_batches
from distxcept.config.schema import Augment, Crop, FolderSource, SyntheticSource
from distxcept.data import batch as batch_module
from distxcept.data import dataset
from distxcept.data.bad_samples import bad_samples
from distxcept.data.dataset import Input, Reading
from distxcept.data.sources import open_source
from distxcept.errors import ConfigError, DoesNotFitError

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


def reading_of(source, **changes):
    usual = {"seed": 1, "augment": AUGMENT, "image_size": SIZE, "max_pixels": 10**8}
    return Reading(source=source, **{**usual, **changes})


def collect(source, plan, replicas=None, *, first=0, updates=None, **changes):
    """Update → sample index → (pixels, label), over the given replicas."""
    replicas = replicas or range(plan.replicas)
    updates = plan.updates_per_epoch if updates is None else updates
    seen = {}
    with Input(reading_of(source, **changes), plan, replicas, first=first, updates=updates) as batches:
        for number, of_replicas in enumerate(batches, start=first):
            here = seen.setdefault(number, {})
            for batch in of_replicas:
                arrays = [part.numpy() for part in (batch.indices, batch.images, batch.labels)]
                for index, image, label in zip(*(a.reshape(-1, *a.shape[2:]) for a in arrays), strict=True):
                    if index >= 0:
                        assert index not in here
                        here[int(index)] = (image.tobytes(), int(label))
    return seen


def test_shapes_types_and_short_last_update(source):
    plan = plan_of(source, replicas=3)
    with Input(reading_of(source), plan, range(3), updates=3) as batches:
        got = list(batches)
    for update, of_replicas in enumerate(got):
        for number, batch in enumerate(of_replicas):
            block = plan.block(update, number)
            assert batch.first_virtual == block.start
            assert batch.images.shape == (len(block), 2, SIZE, SIZE, 3)
            assert batch.images.dtype == "uint8"
            assert batch.labels.dtype == "int32"
            assert batch.weights.dtype == "float32"
            assert batch.indices.dtype == "int64"
            assert batch.lane_bounds.shape == (0,)
            assert "CPU" in batch.images.device
            assert np.array_equal(batch.weights, (batch.indices.numpy() >= 0).astype(np.float32))
    last = got[-1][-1]
    assert last.indices.numpy()[-1, -1] == -1
    assert not last.images.numpy()[-1, -1].any()


def test_an_evaluation_gets_batches_of_one_size(source):
    plan = plan_of(source, replicas=3)
    with Input(reading_of(source), plan, range(3), updates=3, pad=True) as batches:
        sizes = [[batch.images.shape[0] for batch in of_replicas] for of_replicas in batches]
    assert len({tuple(row) for row in sizes}) == 1
    assert sum(sizes[0]) >= 4


def test_bounds_of_lanes(source):
    plan = plan_of(source, replicas=2, lanes=4)
    with Input(reading_of(source), plan, range(2), updates=3) as batches:
        got = list(batches)
    for update, of_replicas in enumerate(got):
        for number, batch in enumerate(of_replicas):
            expected = plan.local_lane_bounds(plan.virtual_batches(update), number)
            assert batch.lane_bounds.numpy().tolist() == expected
            assert expected


def test_prepared_batches_go_to_the_devices_of_their_replicas(source, monkeypatch):
    went = []
    monkeypatch.setattr(batch_module.Batch, "on", lambda batch, device: went.append(device) or batch)
    asked = lambda: ["GPU:0", "GPU:1"]  # noqa: E731
    with Input(
        reading_of(source), plan_of(source, replicas=2), range(2), updates=3, devices=asked
    ) as batches:
        next(batches)
        assert went == ["GPU:0", "GPU:1"]
        batches.prepare()
        batches.prepare()
        assert went == ["GPU:0", "GPU:1"] * 2  # one update ahead, and no more
        next(batches)
        assert went == ["GPU:0", "GPU:1"] * 2
        assert len(list(batches)) == 1
    assert went == ["GPU:0", "GPU:1"] * 3


def test_a_replica_may_be_left_with_nothing(source):
    plan = plan_of(source, global_batch=4, replicas=3)
    with Input(reading_of(source), plan, range(3), updates=1) as batches:
        first = next(batches)
    assert sorted(batch.images.shape[0] for batch in first) == [0, 1, 1]


@pytest.mark.parametrize(
    ("changes", "reading"),
    [
        ({"micro_batch": 8}, {}),
        ({"replicas": 2}, {}),
        ({"replicas": 3}, {"threads": 5}),
        ({"replicas": 5}, {}),
        ({"replicas": 2, "shares": (3, 1)}, {"threads": 1}),
        ({"replicas": 4}, {"memory": "500KB", "threads": 1}),
    ],
)
def test_the_same_bits_for_every_plan(source, changes, reading):
    expected = collect(source, plan_of(source))
    assert collect(source, plan_of(source, **changes), **reading) == expected
    assert {index for samples in expected.values() for index in samples} == set(range(len(source)))


def test_ranks_together_see_what_one_process_sees(source):
    whole = collect(source, plan_of(source, replicas=3))
    parts = [collect(source, plan_of(source, replicas=3), replicas=range(k, k + 1)) for k in range(3)]
    merged = {point: {k: v for part in parts for k, v in part.get(point, {}).items()} for point in whole}
    assert merged == whole


def test_a_later_start_gives_the_rest_and_epochs_differ(source):
    plan = plan_of(source)
    whole = collect(source, plan, updates=6)
    assert collect(source, plan, first=2, updates=4) == {u: s for u, s in whole.items() if u >= 2}
    first, second = (
        {k: v for update, samples in whole.items() if update // 3 == epoch for k, v in samples.items()}
        for epoch in (0, 1)
    )
    assert first.keys() == second.keys() == set(range(len(source)))
    assert first != second


def test_validation_is_the_centre_in_natural_order(source):
    plan = plan_of(source)
    seen = collect(source, plan, seed=None, augment=None)
    assert list(seen[0]) == list(range(8))
    later = collect(source, plan, seed=None, augment=None, first=3 * plan.updates_per_epoch)
    assert list(seen.values()) == list(later.values())


@pytest.mark.parametrize("crop", [1.0, 0.5])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_the_centre_crop_shows_the_middle(tmp_path, crop, interpolation):
    picture = np.zeros((100, 300, 3), np.uint8)
    middle = round(50 * crop)
    picture[50 - middle : 50 + middle, 150 - middle : 150 + middle] = (200, 40, 90)
    (tmp_path / "a").mkdir()
    Image.fromarray(picture).save(tmp_path / "a" / "x.png")
    source = open_source(FolderSource(kind="folder", path=str(tmp_path)))
    seen = collect(
        source,
        plan_of(source, global_batch=2),
        seed=None,
        augment=None,
        crop=crop,
        interpolation=interpolation,
    )
    pixels = np.frombuffer(seen[0][0][0], np.uint8).reshape(SIZE, SIZE, 3)
    assert (pixels == (200, 40, 90)).all()


def test_bad_images_weigh_nothing_and_are_explained(tmp_path):
    root = write_images(tmp_path, count=7)
    whole = (root / "class_0" / "000.jpg").read_bytes()
    for name, content in {"e": b"", "t": whole[: len(whole) // 2], "n": b"text, not an image"}.items():
        (root / "class_1" / f"{name}.jpg").write_bytes(content)
    source = open_source(FolderSource(kind="folder", path=str(root)))
    (root / "class_2" / "002.jpg").unlink()
    plan, reading = plan_of(source, global_batch=10, micro_batch=2), reading_of(source, seed=3)
    with Input(reading, plan, range(1), updates=1) as batches:
        ((batch,),) = list(batches)
    bad = bad_samples(reading, [batch])
    assert {(path.rsplit("/", 1)[1], reason) for _, path, reason in bad} == {
        ("e.jpg", "empty file"),
        ("t.jpg", "truncated JPEG: no end marker"),
        ("n.jpg", "not a JPEG, PNG, GIF, BMP or WebP image"),
        ("002.jpg", "cannot be read: No such file or directory"),
    }
    zero = {int(i) for i in batch.indices.numpy()[batch.weights.numpy() == 0]}
    assert zero == {index for index, _, _ in bad}
    assert not batch.images.numpy()[batch.weights.numpy() == 0].any()
    assert not batch.labels.numpy()[batch.weights.numpy() == 0].any()


def test_synthetic_is_the_same_everywhere_and_differs_between_splits():
    section = SyntheticSource(kind="synthetic", samples=20, classes=4)
    train, again = open_source(section), open_source(section)
    validation = open_source(section, split="validation")
    assert train.digest() == again.digest() != validation.digest()
    pixels = train.read(7).pixels
    assert np.array_equal(pixels, again.read(7).pixels)
    assert not np.array_equal(pixels, validation.read(7).pixels)
    assert int(pixels.astype(np.int64).sum()) == 4187389  # fixed: the same on every machine


def test_closing_early_ends_it(source):
    batches = Input(reading_of(source), plan_of(source), range(1))
    next(batches)
    batches.close()
    batches.close()
    assert list(batches) == []


def test_too_little_memory_passes_or_is_told(source, monkeypatch):
    """The input starts again from the update that it could not read."""
    monkeypatch.setattr(dataset, "_RETRY_SECONDS", (0.0, 0.0))
    expected = collect(source, plan_of(source))
    for failures in (2, 3):
        batches = Input(reading_of(source), plan_of(source), range(1), updates=3)
        first = next(batches)
        left, start = [failures - 1], batches._start

        def scarce():
            raise tf.errors.ResourceExhaustedError(None, None, "no memory")
            yield

        def again(left=left, start=start, batches=batches):
            start()
            if left[0]:
                left[0] -= 1
                batches._iterators = [scarce()]

        monkeypatch.setattr(batches, "_start", again)
        batches._iterators = [scarce()]
        if failures == 3:
            with pytest.raises(DoesNotFitError, match=r"data\.host_memory"):
                next(batches)
            continue
        rest = [first, *batches]
        found = [{int(i) for i in batch.indices.numpy().ravel() if i >= 0} for (batch,) in rest]
        assert found == [set(samples) for samples in expected.values()]


CONFIG = {
    "data": {"train": {"kind": "synthetic", "samples": 20, "classes": 2}, "validation_fraction": 0.3},
    "batch": {"global": 4, "virtual": 2},
    "model": {"image_size": SIZE},
    "run": {"epochs": 2},
}


def test_the_public_dataset():
    whole = list(distxcept.input_dataset(CONFIG))
    assert whole[0].keys() == {"images", "labels", "weights", "indices"}
    assert whole[0]["images"].shape == (2, 2, SIZE, SIZE, 3)
    second = list(distxcept.input_dataset(CONFIG, replica=1, replicas=2, first_update=3))
    assert len(second) == len(whole) - 3
    assert np.array_equal(second[0]["images"], whole[3]["images"][1:])
    validation = list(distxcept.input_dataset(CONFIG, split="validation"))
    seen = np.concatenate([part["indices"].numpy().ravel() for part in validation])
    assert sorted(seen[seen >= 0]) == list(range((seen >= 0).sum()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "test"}, "there is no split 'test'"),
        ({"replica": 2, "replicas": 2}, "count them from 0"),
        ({"first_update": 1000}, "first_update is 1000, but there are"),
    ],
)
def test_wrong_arguments_of_the_public_dataset(changes, message):
    with pytest.raises(ConfigError, match=message):
        distxcept.input_dataset(CONFIG, **changes)


def test_a_config_without_validation_data():
    data = {"train": CONFIG["data"]["train"]}
    with pytest.raises(ConfigError, match="no validation data"):
        distxcept.input_dataset({**CONFIG, "data": data}, split="validation")
    with pytest.raises(ConfigError, match=r"run\.yaml:\d+: data\.train\.sample"):
        distxcept.input_dataset({"data": {"train": {"kind": "synthetic", "sample": 8, "classes": 2}}})


def test_op_determinism_keeps_the_stages_parallel(tmp_path, source):
    """engine.deterministic=on must not read and decode one by one."""
    folder = source.name(0).rsplit("/", 2)[0]
    program = (
        "import sys, tensorflow as tf\n"
        "tf.config.experimental.enable_op_determinism()\n"
        "import distxcept\n"
        "data = {'train': {'kind': 'folder', 'path': sys.argv[1]}}\n"
        "config = {'data': data, 'batch': {'global': 4}, 'model': {'image_size': 71}}\n"
        "iterator = iter(distxcept.input_dataset(config))\n"
        "next(iterator)\n"
        "nodes = tf.data.experimental.get_model_proto(iterator).nodes.values()\n"
        "print(sum(node.name in ('ParallelMapV2', 'MapAndBatch') for node in nodes))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, folder], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "2"


MIRRORED = """
import json, re, sys
import tensorflow as tf
import distxcept

page, config = open(sys.argv[1]).read(), sys.argv[2]
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
(program,) = [block for block in re.findall("```python(.*?)```", page, re.DOTALL) if "strategy" in block]
exec(program.replace("cfg.yaml", config).replace("MirroredStrategy()", "MirroredStrategy(['CPU:0', 'CPU:1'])"))
element = next(iter(dataset))
parts = strategy.experimental_local_results(element["indices"])
(whole,) = distxcept.input_dataset(config).take(1)
print(json.dumps([[part.numpy().tolist() for part in parts], whole["indices"].numpy().tolist()]))
print(strategy.experimental_local_results(element["images"])[1].device)
"""


def test_the_page_shows_how_a_strategy_gets_it(tmp_path):
    config = tmp_path / "cfg.yaml"
    config.write_text(yaml.safe_dump({**CONFIG, "run": {"updates": 2}}))
    page = Path(__file__).parents[2] / "docs" / "data.md"
    done = subprocess.run(
        [sys.executable, "-c", MIRRORED, page, config], capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    indices, device = done.stdout.splitlines()[-2:]
    parts, whole = json.loads(indices)
    assert [part[0] for part in parts] == whole
    assert device.endswith("CPU:1")
