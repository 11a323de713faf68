"""The drawn flowers: the same for the same seed, never half made, different between kinds and splits."""

import hashlib

import numpy as np
import pytest
from PIL import Image

from distxcept.data import flowers
from distxcept.data.flowers import KINDS, main, make_flowers
from distxcept.errors import DataError


def digests(root):
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*.jpg")
    }


def test_the_same_seed_gives_the_same_files(tmp_path):
    assert make_flowers(tmp_path / "a", train=12, validation=5)
    assert make_flowers(tmp_path / "b", train=12, validation=5)
    assert make_flowers(tmp_path / "c", train=12, validation=5, seed=1)
    first = digests(tmp_path / "a")
    assert first == digests(tmp_path / "b")
    assert len(first) == len(set(first.values())) == 17
    assert not set(first.values()) & set(digests(tmp_path / "c").values())
    assert sorted(path.name for path in (tmp_path / "a" / "train").iterdir()) == sorted(KINDS)
    with Image.open(next((tmp_path / "a" / "train" / "rose").iterdir())) as image:
        assert image.format == "JPEG"
        assert min(image.size) >= 110


def test_a_second_run_keeps_it_and_other_settings_are_refused(tmp_path, capsys):
    arguments = [str(tmp_path / "a"), "--train", "5", "--validation", "5"]
    assert main(arguments) == 0
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("kept")
    assert main([*arguments, "--seed", "3"]) == 3
    assert "remove it or choose another folder" in capsys.readouterr().err


def test_nothing_is_left_of_a_failed_run(tmp_path, monkeypatch):
    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr(flowers, "ProcessPoolExecutor", broken)
    with pytest.raises(OSError, match="disk full"):
        make_flowers(tmp_path / "a", train=5, validation=5)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(DataError, match="was not made with these settings"):
        make_flowers(tmp_path / "mine", train=5, validation=5)


def test_colours_do_not_tell_the_kind():
    """Mean colours of the kinds overlap: the distance between kinds is small against the spread within one."""
    means = {
        kind: np.array(
            [
                np.asarray(flowers.draw_flower(kind, np.random.default_rng([7, k]))).reshape(-1, 3).mean(0)
                for k in range(40)
            ]
        )
        for kind in KINDS
    }
    spread = np.mean([values.std(0).mean() for values in means.values()])
    centres = np.array([values.mean(0) for values in means.values()])
    assert centres.std(0).max() < spread
