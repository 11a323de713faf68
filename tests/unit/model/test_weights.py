"""Files of every layout that Keras has written, and files that must be refused."""

import json
import shutil
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

from distxcept.errors import ConfigError
from distxcept.model.initial import initial_value
from distxcept.model.weights import load_weights
from distxcept.model.xception import Xception

PAPER = Xception(classes=1000)


def small(**changes) -> Xception:
    return Xception(**{"classes": 5, "width": 0.0625, "middle_blocks": 1, **changes})


def values_of(model: Xception) -> dict[str, np.ndarray]:
    return {p.name: initial_value(p, seed=3) for p in model.parameters}


@pytest.fixture(scope="module")
def files(keras_xception: keras.Model, tmp_path_factory) -> Path:
    """What Keras writes, and older layouts derived from it."""
    folder = tmp_path_factory.mktemp("keras")
    keras_xception.save_weights(folder / "new.weights.h5")
    keras_xception.save(folder / "archive.keras")
    keras_xception.save(folder / "legacy.h5")
    shutil.copy(folder / "new.weights.h5", folder / "unnamed.weights.h5")
    with h5py.File(folder / "unnamed.weights.h5", "r+") as file:
        for group in [item for item in _groups(file) if "name" in item.attrs]:
            del group.attrs["name"]
    _without_model_names(folder / "legacy.h5", folder / "ancient.h5")
    yield folder
    shutil.rmtree(folder)


def _groups(group: h5py.Group) -> list[h5py.Group]:
    inner = [item for item in group.values() if isinstance(item, h5py.Group)]
    return inner + [deeper for item in inner for deeper in _groups(item)]


def _without_model_names(source: Path, target: Path) -> None:
    """As the first release of Keras wrote weights: every layer numbered, weights named in its own way, no top group."""
    with h5py.File(source) as legacy, h5py.File(target, "w") as file:
        layers = legacy["model_weights"]
        names = []
        for number, layer in enumerate(layers.attrs["layer_names"]):
            name = f"layer_{number}"
            names.append(name.encode())
            group = file.create_group(name)
            weights = [layers[layer][weight] for weight in layers[layer].attrs["weight_names"]]
            group.attrs["weight_names"] = [f"{name}_param_{k}:0".encode() for k in range(len(weights))]
            for k, weight in enumerate(weights):
                group[f"{name}_param_{k}:0"] = weight[()]
        # Keras cuts a list of names that is too long for one attribute.
        file.attrs["layer_names0"], file.attrs["layer_names1"] = names[:50], names[50:]


@pytest.mark.parametrize(
    "name", ["new.weights.h5", "archive.keras", "legacy.h5", "unnamed.weights.h5", "ancient.h5"]
)
def test_every_layout_gives_the_same_weights(name: str, files: Path, expected_weights):
    notices: list[str] = []
    found = load_weights(str(files / name), PAPER, notice=notices.append)
    assert not notices
    assert set(found) == {p.name for p in PAPER.parameters}
    assert all(np.array_equal(found[name], expected_weights[name]) for name in found)


def test_nothing_given_is_nothing():
    assert load_weights(None, PAPER) == {}


@pytest.mark.parametrize("layout", [".weights.h5", ".h5", ".keras"])
def test_without_classifier_inside_another_model_and_numbered_from_anywhere(layout: str, tmp_path: Path):
    """As someone fine-tunes: Keras' model without its top as a layer, and a classifier of their own."""
    keras.layers.Conv2D(1, 1)  # moves Keras' counter
    base = keras.applications.Xception(
        weights=None, include_top=False, pooling="avg", input_shape=(71, 71, 3)
    )
    for layer in base.layers[:30]:
        layer.trainable = False
    model = keras.Sequential([keras.Input((71, 71, 3)), base, keras.layers.Dense(7)])
    path = tmp_path / f"tuned{layout}"
    model.save_weights(path) if layout == ".weights.h5" else model.save(path)
    base_path = tmp_path / f"base{layout}"
    base.save_weights(base_path) if layout == ".weights.h5" else base.save(base_path)
    first = next(layer for layer in base.layers if layer.name.startswith("conv2d"))
    notices: list[str] = []

    with_head = load_weights(str(path), Xception(classes=7), notice=notices.append)
    assert not notices
    assert np.array_equal(with_head["predictions/kernel"], np.asarray(model.layers[-1].kernel))
    assert np.array_equal(with_head["block2_residual/kernel"], np.asarray(first.kernel))

    without = load_weights(str(base_path), Xception(classes=7), notice=notices.append)
    assert set(with_head) - set(without) == {"predictions/kernel", "predictions/bias"}
    assert all(np.array_equal(without[name], with_head[name]) for name in without)
    assert "no classifier" in notices.pop()

    load_weights(str(path), Xception(classes=8), notice=notices.append)
    assert "7 classes" in notices[0] and "predictions starts from random values" in notices[0]


def test_imagenet_goes_through_keras(files: Path, expected_weights, monkeypatch):
    asked = []

    def no_download(name, *_, **__):
        asked.append(name)
        return str(files / "legacy.h5")

    monkeypatch.setattr("keras.src.utils.file_utils.get_file", no_download)
    found = load_weights("imagenet", PAPER)
    assert asked == ["xception_weights_tf_dim_ordering_tf_kernels.h5"]
    assert all(np.array_equal(found[p.name], expected_weights[p.name]) for p in PAPER.parameters)


def test_imagenet_without_network_says_what_to_do(monkeypatch, capsys):
    def offline(*_, **__):
        print("Downloading data")
        raise Exception("URL fetch failure on https://example.org: None -- unreachable")

    monkeypatch.setattr("keras.src.utils.file_utils.get_file", offline)
    with pytest.raises(
        ConfigError, match=r"could not get the file \(URL fetch.*model\.weights=PATH"
    ) as error:
        load_weights("imagenet", Xception(classes=5))
    assert "\n" not in str(error.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("prefix", ["", "weights/"])
def test_own_tensors(prefix: str, tmp_path: Path):
    model = small()
    values = values_of(model)
    save_file({f"{prefix}{name}": value for name, value in values.items()}, tmp_path / "own.safetensors")
    found = load_weights(str(tmp_path / "own.safetensors"), model)
    assert all(np.array_equal(found[name], values[name]) for name in values)
    assert set(found) == set(values)


def test_a_run_gives_its_best_snapshot_and_there_the_moving_average(tmp_path: Path):
    model = small()
    values = values_of(model)
    name = "block1_conv1/kernel"
    for update, factor in ((90, 1.0), (100, 2.0), (110, 3.0)):
        snapshot = tmp_path / "checkpoints" / f"update-{update:08d}"
        snapshot.mkdir(parents=True)
        tensors = {f"weights/{key}": value for key, value in values.items()}
        tensors |= {f"ema/{name}": values[name] * factor, f"slots/velocity/{name}": values[name]}
        tensors["counters/applied"] = np.asarray(update)
        save_file(tensors, snapshot / "tensors.safetensors")

    def factor_of(path: Path) -> float:
        notices: list[str] = []
        found = load_weights(str(path), model, notice=notices.append)
        assert "update-" in notices[0]
        return float(np.max(found[name]) / np.max(values[name]))

    assert factor_of(tmp_path) == 3.0
    (tmp_path / "checkpoints" / "best.json").write_text(json.dumps({"snapshot": "update-00000100"}))
    assert factor_of(tmp_path) == 2.0
    assert factor_of(tmp_path / "checkpoints" / "update-00000090") == 1.0


def _own_file(tmp_path: Path, values: dict[str, np.ndarray]) -> str:
    save_file(values, tmp_path / "own.safetensors")
    return str(tmp_path / "own.safetensors")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            dict(width=0.125),
            r"block2_residual/kernel is \(1, 1, 8, 8\) in .*s, but \(1, 1, 8, 16\) .*model\.width",
        ),
        (dict(middle_blocks=2), r"has no block6_sepconv1/depthwise_kernel \(3, 3, 48, 1\)"),
        (dict(middle_blocks=0), r"has block5_sepconv1/depthwise_kernel, which this model does not have"),
    ],
)
def test_another_architecture_is_refused(other: dict, message: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=message):
        load_weights(_own_file(tmp_path, values_of(small())), small(**other), notice=print)


def test_values_that_are_not_finite_are_refused(tmp_path: Path):
    values = values_of(small())
    values["block4_residual_bn/beta"][1] = np.nan
    with pytest.raises(ConfigError, match=r"block4_residual_bn/beta .* is not finite"):
        load_weights(_own_file(tmp_path, values), small())


def _keras_like(path: Path, model: Xception) -> None:
    """A small file in Keras' named layout, to damage."""
    with h5py.File(path, "w") as file:
        for number, name in enumerate(dict.fromkeys(p.name.split("/")[0] for p in model.parameters)):
            group = file.create_group(f"layers/thing_{number}/vars")
            group.attrs["name"] = name
            for k, p in enumerate(p for p in model.parameters if p.name.split("/")[0] == name):
                group[str(k)] = initial_value(p, seed=3)


def _external_link(file: h5py.File, group: h5py.Group) -> None:
    group["0"] = h5py.ExternalLink("/etc/hostname", "/x")


def _soft_link(file: h5py.File, group: h5py.Group) -> None:
    file["elsewhere"] = np.zeros((3, 3, 3, 8), np.float32)
    group["0"] = h5py.SoftLink("/elsewhere")


def _external_storage(file: h5py.File, group: h5py.Group) -> None:
    group.create_dataset("0", (3, 3, 3, 8), np.float32, external=[("/etc/hostname", 0, h5py.h5f.UNLIMITED)])


def _virtual(file: h5py.File, group: h5py.Group) -> None:
    layout = h5py.VirtualLayout((3, 3, 3, 8), np.float32)
    layout[:] = h5py.VirtualSource("/tmp/other.h5", "x", (3, 3, 3, 8))
    group.create_virtual_dataset("0", layout)


def _huge(file: h5py.File, group: h5py.Group) -> None:
    group.create_dataset(
        "0", (1 << 20, 1 << 20, 1 << 10), np.float32, chunks=(64, 64, 64), compression="gzip"
    )


def _text(file: h5py.File, group: h5py.Group) -> None:
    group.create_dataset("0", (3, 3, 3, 8), h5py.string_dtype())


def _ring(file: h5py.File, group: h5py.Group) -> None:
    group["0"] = np.zeros((3, 3, 3, 8), np.float32)
    group["again"] = file["layers"]


def _missing(file: h5py.File, group: h5py.Group) -> None:
    pass


def _two_weights(file: h5py.File, group: h5py.Group) -> None:
    group["0"] = group["1"] = np.zeros((3, 3, 3, 8), np.float32)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_external_link, "layers/thing_0/vars/0 is a link to elsewhere"),
        (_soft_link, "layers/thing_0/vars/0 is a link to elsewhere"),
        (_external_storage, "block1_conv1/kernel .* in another file"),
        (_virtual, "block1_conv1/kernel .* in another file"),
        (_huge, r"block1_conv1/kernel is \(1048576, 1048576, 1024\)"),
        (_text, "block1_conv1/kernel .* not plain floating-point"),
        (_ring, "more than .* levels"),
        (_missing, r"has no block1_conv1/kernel \(3, 3, 3, 8\)"),
        (_two_weights, "layer block1_conv1 has 2 weights, but block1_conv1 has 1: kernel"),
    ],
)
def test_damaged_and_hostile_files_are_refused_in_one_line(damage, message: str, tmp_path: Path):
    path = tmp_path / "file.weights.h5"
    _keras_like(path, small())
    assert len(load_weights(str(path), small())) == len(small().parameters)
    with h5py.File(path, "r+") as file:
        group = file["layers/thing_0/vars"]
        del group["0"]
        damage(file, group)
    with pytest.raises(ConfigError, match=message) as error:
        load_weights(str(path), small())
    assert "\n" not in str(error.value)


def test_broken_containers_are_refused(tmp_path: Path):
    model = small()
    _keras_like(tmp_path / "whole.weights.h5", model)
    whole = (tmp_path / "whole.weights.h5").read_bytes()
    (tmp_path / "cut.weights.h5").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "noise.keras").write_bytes(b"PK\x03\x04" + bytes(100))
    (tmp_path / "noise.safetensors").write_bytes(bytes(100))
    (tmp_path / "model.pkl").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    with zipfile.ZipFile(tmp_path / "other.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    with zipfile.ZipFile(tmp_path / "bomb.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.weights.h5", bytes(150 << 20))
    for name, message in {
        "cut.weights.h5": "cannot be read as a Keras file",
        "noise.keras": "cannot be read as a Keras file",
        "other.keras": "holds config.json, but no model.weights.h5",
        "bomb.keras": "has 157286400 bytes, but this model needs at most",
        "noise.safetensors": "is it a whole safetensors file",
        "model.pkl": "none of .safetensors",
        "empty": "no snapshot in it",
        "absent.h5": "does not exist",
    }.items():
        with pytest.raises(ConfigError, match=message) as error:
            load_weights(str(tmp_path / name), model)
        assert "\n" not in str(error.value)


def test_blocks_that_the_model_lacks_are_not_dropped_silently(tmp_path: Path):
    _keras_like(tmp_path / "deep.weights.h5", small(middle_blocks=2))
    with pytest.raises(ConfigError, match="a layer block6_sepconv1, which this model does not have"):
        load_weights(str(tmp_path / "deep.weights.h5"), small())
