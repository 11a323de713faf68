"""The tfds source, on a small dataset that the test itself builds with the package."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from test_dataset import collect, plan_of

from distxcept.config.schema import TfdsSource
from distxcept.data.sources import open_source
from distxcept.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (10, 80, 90, 3)).astype(np.uint8)
LABELS = [k % 3 for k in range(10)]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    root = str(tmp_path_factory.mktemp("tfds"))
    parts = {"train": slice(0, 7), "test": slice(7, 10)}
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(None, None, 3), encoding_format="png"),
            "label": tfds.features.ClassLabel(names=["rose", "tulip", "daisy"]),
        }
    )
    tfds.dataset_builders.store_as_tfds_dataset(
        name="tiny_flowers",
        version="1.0.0",
        features=features,
        split_datasets={
            name: tf.data.Dataset.from_tensor_slices({"image": PIXELS[part], "label": LABELS[part]})
            for name, part in parts.items()
        },
        data_dir=root,
        disable_shuffling=True,
    )
    return root


def test_reads_any_sample(data_dir):
    source = open_source(TfdsSource(kind="tfds", name="tiny_flowers", data_dir=data_dir))
    assert source.class_names == ("rose", "tulip", "daisy")
    assert source.labels.tolist() == LABELS[:7]
    plan = plan_of(source, global_batch=7, virtual_batch=7, micro_batch=7)
    seen = collect(source, plan, seed=None, augment=None, image_size=80)[0]
    for k in range(7):
        pixels = np.frombuffer(seen[k][0], np.uint8).reshape(80, 80, 3)
        assert np.array_equal(pixels, PIXELS[k][:, 5:85])
    test = open_source(
        TfdsSource(kind="tfds", name="tiny_flowers", data_dir=data_dir, split="test"),
        split="validation",
        class_names=source.class_names,
    )
    assert test.labels.tolist() == LABELS[7:]


@pytest.mark.parametrize("changes", [{"name": "no_such_dataset"}, {"split": "no_such_split"}])
def test_says_what_is_wrong(data_dir, changes):
    section = TfdsSource(**{"kind": "tfds", "name": "tiny_flowers", "data_dir": data_dir, **changes})
    with pytest.raises(DataError, match=r"is not usable: .*tfds build"):
        open_source(section)
