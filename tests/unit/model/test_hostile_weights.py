"""Files that would run code, eat the memory, or reach for other files: refused, and nothing of it happens.

Each payload makes a canary file. The first tests let Keras and pickle loose on the same files, to show that it would.
"""

import base64
import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from distxcept.checkpoint.names import find_snapshot
from distxcept.checkpoint.snapshot import SnapshotError, write_snapshot
from distxcept.checkpoint.tensors import TensorsError, read_tensors
from distxcept.errors import ConfigError
from distxcept.model.weights import load_weights
from distxcept.model.xception import Xception

MODEL = Xception(classes=5, width=0.0625, middle_blocks=1)


class Payload:
    def __init__(self, canary: Path):
        self.canary = canary

    def __reduce__(self):
        return Path.touch, (self.canary,)


@pytest.fixture
def canary(tmp_path, monkeypatch):
    monkeypatch.setenv("CANARY", str(tmp_path / "canary"))
    return tmp_path / "canary"


@pytest.fixture
def pickled(canary) -> bytes:
    return pickle.dumps(Payload(canary))


def lambda_model() -> keras.Model:
    """Its code sees the path in the environment, since it travels alone."""
    code = "lambda x: (__import__('pathlib').Path(__import__('os').environ['CANARY']).touch(), x)[1]"
    inputs = keras.Input((4,))
    return keras.Model(inputs, keras.layers.Lambda(eval(code), output_shape=(4,))(inputs))


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_code_in_a_keras_file(suffix, tmp_path, canary):
    path = tmp_path / f"model{suffix}"
    lambda_model().save(path)
    canary.unlink(missing_ok=True)
    keras.saving.load_model(path, safe_mode=False)(np.zeros((1, 4)))
    assert canary.exists()  # the payload is alive
    canary.unlink()
    with pytest.raises(ConfigError):
        load_weights(str(path), MODEL)
    assert not canary.exists()


def test_a_custom_object_in_a_keras_file(tmp_path, canary, pickled):
    """Whatever config.json asks for is never looked at."""
    config = {
        "module": "pathlib", "class_name": "Path", "registered_name": "builtins>eval",
        "config": {"code": base64.b64encode(pickled).decode(), "path": str(canary)},
    }  # fmt: skip
    with zipfile.ZipFile(tmp_path / "custom.keras", "w") as archive:
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("metadata.json", pickled)
        archive.writestr("model.weights.h5", pickled)
    with pytest.raises(ConfigError, match="cannot be read as a Keras file"):
        load_weights(str(tmp_path / "custom.keras"), MODEL)
    assert not canary.exists()


def test_an_archive_that_climbs_out_of_its_folder(tmp_path, monkeypatch):
    folder = tmp_path / "deep" / "inside"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    weights = io.BytesIO()
    with h5py.File(weights, "w"):
        pass
    with zipfile.ZipFile(folder / "climb.keras", "w") as archive:
        for name in ("../../canary", str(tmp_path / "canary"), "assets/../../../canary"):
            archive.writestr(name, b"out")
        archive.writestr("model.weights.h5", weights.getvalue())
    with pytest.raises(ConfigError):
        load_weights("climb.keras", MODEL)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["climb.keras", "deep", "inside"]


def test_pickle_in_a_safetensors_file(tmp_path, canary, pickled):
    pickle.loads(pickled)  # noqa: S301 - the payload is alive
    assert canary.exists()
    canary.unlink()
    header = json.dumps({"__metadata__": {"pickle": base64.b64encode(pickled).decode()}}).encode()
    files = {
        "plain": pickled,
        "in the data": struct.pack("<Q", 2) + b"{}" + pickled,
        "in the header": struct.pack("<Q", len(header)) + header,
        "in an object tensor": _tensors({"a": ("O", [1], 8)}, 8),
    }
    for name, content in files.items():
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(content)
        with pytest.raises(ConfigError):
            load_weights(str(path), MODEL)
        if name != "in the header":  # a whole file without a tensor
            with pytest.raises(TensorsError):
                read_tensors(path)
    assert not canary.exists()


def _tensors(entries: dict[str, tuple[str, list[int], int]], size: int) -> bytes:
    """A safetensors file that may claim anything: name → (type, shape, bytes)."""
    header, end = {}, 0
    for name, (dtype, shape, length) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + length]}
        end += length
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


BOMBS = {
    "more than the file holds": _tensors({"block1_conv1/kernel": ("F32", [1 << 40], 4 << 40)}, 100),
    "a product that overflows": _tensors({"block1_conv1/kernel": ("F32", [1 << 32, 1 << 32, 1 << 32], 4)}, 4),
    "a header of many gigabytes": struct.pack("<Q", 1 << 62) + b"{}",
    "no elements but a huge side": _tensors({"block1_conv1/kernel": ("F32", [0, 1 << 62], 0)}, 0),
}


@pytest.mark.parametrize("name", BOMBS)
def test_shapes_that_would_eat_the_memory(name, tmp_path):
    path = tmp_path / "bomb.safetensors"
    path.write_bytes(BOMBS[name])
    with pytest.raises(ConfigError):
        load_weights(str(path), MODEL)


def test_a_snapshot_whose_manifest_is_right_and_whose_tensors_are_not(tmp_path, canary, pickled, monkeypatch):
    """Anybody can compute a checksum: it guards against damage, not against an enemy."""
    for number, content in enumerate([pickled, *BOMBS.values()]):
        folder = tmp_path / str(number) / "checkpoints" / "update-00000001"
        folder.mkdir(parents=True)
        monkeypatch.setattr(
            "distxcept.checkpoint.snapshot.encode", lambda tensors, content=content: [content]
        )
        write_snapshot(folder, 1, {}, {"py/object": "os.system", "progress": {}})
        snapshot = find_snapshot(str(tmp_path / str(number))).snapshot
        with pytest.raises(SnapshotError):
            snapshot.inference_tensors({"block1_conv1/kernel": (3, 3, 3, 8)})
    assert not canary.exists()


def test_pointers_and_manifests_that_name_other_files(tmp_path):
    folder = tmp_path / "run" / "checkpoints" / "update-00000001"
    folder.mkdir(parents=True)
    write_snapshot(folder, 1, {"weights/a": np.zeros(1, np.float32)}, {})
    (tmp_path / "run" / "checkpoints" / "best.json").write_text('{"snapshot": "../../../etc"}')
    with pytest.raises(ConfigError, match="no snapshot is named best"):
        find_snapshot(f"{tmp_path / 'run'}:best")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"]["../../../../etc/passwd"] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError):
        find_snapshot(f"{tmp_path / 'run'}:update=1")
