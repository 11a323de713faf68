"""`distxcept data check` and `pack` from the command line."""

import json

import numpy as np
import pytest
import yaml
from PIL import Image
from test_dataset import write_images

from distxcept.cli.main import main


@pytest.fixture
def data(tmp_path):
    """Training and validation folders with one of each thing that the check must find."""
    train, validation = (write_images(tmp_path / name, count=9, seed=seed) for seed, name in enumerate("tv"))
    first = (train / "class_0" / "000.jpg").read_bytes()
    (train / "class_0" / "copy.jpg").write_bytes(first)
    (train / "class_1" / "relabelled.jpg").write_bytes(first + b"\0\0")
    (validation / "class_2" / "leak.jpg").write_bytes(first)
    (train / "class_1" / "empty.jpg").write_bytes(b"")
    Image.fromarray(np.zeros((10, 20, 3), np.uint8)).save(train / "class_1" / "small.png")
    config = tmp_path / "c.yaml"
    sources = {
        "train": {"kind": "folder", "path": str(train)},
        "validation": {"kind": "folder", "path": str(validation)},
    }
    config.write_text(yaml.safe_dump({"data": sources}))
    return config


def test_report_as_json(data, capsys):
    assert main(["data", "check", str(data), "--json", "data.max_bad_fraction=0.5"]) == 0
    report = json.loads(capsys.readouterr().out)
    train = report["train"]
    assert train["samples"] == 13
    assert train["classes"] == {"class_0": 4, "class_1": 6, "class_2": 3}
    assert train["imbalance"] == 2.0
    assert train["formats"] == {"jpeg": 11, "png": 1}
    assert train["width"]["min"] == 20
    assert [(entry["path"].rsplit("/", 1)[1], entry["reason"]) for entry in train["bad"]] == [
        ("empty.jpg", "empty file")
    ]
    assert [[name.rsplit("/", 1)[1] for name in group] for group in train["duplicates"]] == [
        ["000.jpg", "copy.jpg", "relabelled.jpg"]
    ]
    assert train["duplicates_with_other_labels"] == 1
    assert report["validation"]["bad"] == []
    assert report["shared_by_train_and_validation"] == 1


def test_report_to_read_with_picture_and_exit_code(data, capsys, tmp_path):
    assert main(["data", "check", str(data), "--picture", str(tmp_path / "p.png")]) == 3
    out = capsys.readouterr().out
    for words in (
        "train: 13 images, 3 classes",
        "1 bad:",
        "empty.jpg: empty file",
        "1 groups of equal images, 1 of them with different labels",
        "WARNING: 1 validation images are in the training data too",
        "too many bad images: data.max_bad_fraction is 0.01",
    ):
        assert words in out
    with Image.open(tmp_path / "p.png") as picture:
        pixels = np.asarray(picture)
    assert (pixels == (200, 30, 30)).all(axis=-1).sum() >= 96 * 96  # the bad one, in red
    assert (pixels == (0x4A, 0x7F, 0xB5)).all(axis=-1).any()


def test_pack_from_the_command_line(data, tmp_path, capsys):
    train, validation = tmp_path / "t", tmp_path / "v"
    for folder in (validation / "class_0").iterdir():
        folder.unlink()
    (validation / "class_0").rmdir()
    assert main(["pack", str(train), str(tmp_path / "pt"), "--processes", "1", "--shard-size", "20KB"]) == 0
    captured = capsys.readouterr()
    assert "13 images in" in captured.out
    assert "1 bad (packed all the same)" in captured.out
    assert "empty.jpg: empty file" in captured.err
    arguments = ["pack", str(validation), str(tmp_path / "pv"), "--processes", "1"]
    assert main([*arguments, "--classes-from", str(tmp_path / "pt")]) == 0
    packed = {"kind": "records"}
    sources = {
        "train": {**packed, "path": str(tmp_path / "pt")},
        "validation": {**packed, "path": str(tmp_path / "pv")},
    }
    config = tmp_path / "packed.yaml"
    config.write_text(yaml.safe_dump({"data": {**sources, "max_bad_fraction": 0.5}}))
    capsys.readouterr()
    assert main(["data", "check", str(config), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["validation"]["classes"] == {"class_0": 0, "class_1": 3, "class_2": 4}
    assert report["shared_by_train_and_validation"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing", "x"], 2, "neither a folder nor a .csv file"),
        (["t", "x", "--shard-size", "big"], 2, "is no size"),
        (["t", "x", "--quality", "0"], 2, "is not from 1 to 95"),
        (["t", "t"], 3, "is not empty"),
        (["m.csv", "x"], 3, "cannot be read as CSV"),
    ],
)
def test_pack_says_what_is_wrong(data, tmp_path, monkeypatch, capsys, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    assert main(["pack", *arguments]) == code
    assert message in capsys.readouterr().err
