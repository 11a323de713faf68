"""Images named one by one: found, read ahead, in order, none held back and none lost."""

import io
import os
import queue

import numpy as np
import pytest
from PIL import Image

from distxcept.data.loose_files import Missing, find_files, listed_names, read_batches


@pytest.fixture
def pictures(tmp_path):
    """Seven images of one gray value each, 10, 20, …"""
    for number in range(1, 8):
        Image.new("RGB", (12, 9), (10 * number,) * 3).save(tmp_path / f"{number}.png")
    return tmp_path


def test_folders_are_searched_in_order_and_files_taken_as_they_are(tmp_path):
    for name in ("b/2.jpg", "b/1.jpg", "b/a/9.png", "b/.hidden.jpg", "b/notes.txt", "z.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    found = list(find_files([str(tmp_path / name) for name in ("z.txt", "b", "none.jpg", "empty")]))
    names = [os.path.relpath(one.path if isinstance(one, Missing) else one, tmp_path) for one in found]
    assert names == ["z.txt", "b/1.jpg", "b/2.jpg", "b/a/9.png", "none.jpg", "empty"]
    assert isinstance(found[-1], Missing)


@pytest.mark.parametrize(
    ("data", "separator", "names"),
    [
        (b"a\nb c\r\n\n\xff\nlast", b"\n", ["a", "b c", "\udcff", "last"]),
        (b"a\nb\0\0c\0", b"\0", ["a\nb", "c"]),
        (b"a\0last", b"\0", ["a", "last"]),
        (b"", b"\n", []),
    ],
)
def test_listed_names(data, separator, names):
    assert list(listed_names(io.BytesIO(data), separator=separator)) == names


def test_batches_keep_the_order_and_tell_bad_files_in_their_place(pictures):
    (pictures / "broken.png").write_bytes((pictures / "1.png").read_bytes()[:12])
    os.mkfifo(pictures / "pipe.png")
    files = ["1.png", "broken.png", "2.png", "none.png", "3.png", "pipe.png", "4.png"]
    batches = list(read_batches([str(pictures / name) for name in files], batch=3, image_size=8))
    paths = [os.path.basename(path) for batch in batches for path in batch.paths]
    assert paths == files
    values = np.concatenate([batch.images.mean(axis=(1, 2, 3)) for batch in batches])
    assert values.round().tolist() == [10, 0, 20, 0, 30, 0, 40]
    bad = {batch.paths[k]: reason for batch in batches for k, reason in batch.bad.items()}
    assert {os.path.basename(path): reason for path, reason in bad.items()} == {
        "broken.png": "truncated inside its header",
        "none.png": "cannot be read: No such file or directory",
        "pipe.png": "not a regular file",
    }


def test_what_has_come_is_not_held_back(pictures):
    """A program writes a name and waits for its answer before it writes the next."""
    names: queue.Queue[str | None] = queue.Queue()
    batches = read_batches(iter(names.get, None), batch=32, image_size=8)
    for number in (1, 2, 3):
        names.put(str(pictures / f"{number}.png"))
        (image,) = next(batches).images
        assert image.mean().round() == 10 * number
    names.put(None)
    assert list(batches) == []


def test_an_endless_list_is_not_read_far_ahead(pictures):
    taken = []

    def endless():
        while True:
            taken.append(str(pictures / "1.png"))
            yield taken[-1]

    batches = read_batches(endless(), batch=2, image_size=8)
    for _ in range(3):
        next(batches)
    batches.close()
    assert len(taken) < 30


def test_an_error_of_the_list_comes_after_what_was_before_it(pictures):
    def failing():
        yield str(pictures / "1.png")
        raise OSError("the list broke off")

    batches = read_batches(failing(), batch=4, image_size=8)
    assert len(next(batches).paths) == 1
    with pytest.raises(OSError, match="broke off"):
        next(batches)
