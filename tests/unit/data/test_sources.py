"""Every source: what it lists, in which order, what it reads, and what it says when something is wrong."""

import os

import numpy as np
import pytest

from distxcept.config.schema import (
    ArraysSource,
    DataSection,
    FolderSource,
    ManifestSource,
    RecordsSource,
    SyntheticSource,
)
from distxcept.data.records.shard import encode_example, frame
from distxcept.data.sources import BadSample, open_source, open_sources
from distxcept.errors import DataError


def write(root, files):
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def folder(path):
    return FolderSource(kind="folder", path=str(path))


def names_below(source, root):
    return [os.path.relpath(source.name(k), root) for k in range(len(source))]


TREE = {
    "b/2.jpg": b"two",
    "b/10.png": b"ten",
    "a/deep/er/x.JPEG": b"x",
    "a/Z.jpg": b"z",
    "a/no_extension": b"n",
    "a/notes.txt": b"",
    "a/.hidden.jpg": b"",
    ".git/x.jpg": b"",
    "c/only.bmp": b"c",
    "readme.md": b"",
}


class TestFolder:
    def test_lists_images_sorted_by_bytes(self, tmp_path):
        source = open_source(folder(write(tmp_path, TREE)))
        assert source.class_names == ("a", "b", "c")
        assert names_below(source, tmp_path) == [
            "a/Z.jpg",
            "a/deep/er/x.JPEG",
            "a/no_extension",
            "b/10.png",
            "b/2.jpg",
            "c/only.bmp",
        ]
        assert source.labels.tolist() == [0, 0, 0, 1, 1, 2]
        assert source.read(4).encoded == b"two"

    def test_digest_tells_other_names_and_labels(self, tmp_path):
        first = open_source(folder(write(tmp_path / "1", TREE))).digest()
        assert open_source(folder(write(tmp_path / "2", TREE))).digest() == first
        moved = {("a/2.jpg" if name == "b/2.jpg" else name): data for name, data in TREE.items()}
        assert open_source(folder(write(tmp_path / "3", moved))).digest() != first

    def test_validation_takes_the_numbers_of_the_training_classes(self, tmp_path):
        source = open_source(
            folder(write(tmp_path, {"c/x.jpg": b""})), split="validation", class_names=("a", "b", "c")
        )
        assert source.labels.tolist() == [2]
        with pytest.raises(DataError, match="'c', which the training data lacks"):
            open_source(folder(tmp_path), split="validation", class_names=("a", "b"))

    def test_odd_names_and_links(self, tmp_path):
        write(tmp_path, {"ä\n/x y.jpg": b"1"})
        os.symlink(tmp_path, tmp_path / "ä\n" / "circle")
        os.symlink(tmp_path / "ä\n" / "x y.jpg", tmp_path / "ä\n" / "y.jpg")
        with open(os.path.join(os.fsencode(tmp_path), "ä\n".encode(), b"\xff.jpg"), "wb") as file:
            file.write(b"2")
        source = open_source(folder(tmp_path))
        assert [source.read(k).encoded for k in range(len(source))] == [b"1", b"1", b"2"]
        assert source.digest()

    @pytest.mark.parametrize(
        ("files", "message"),
        [({}, "is not a folder"), ({"x.jpg": b""}, "no sub-folders"), ({"a/x.txt": b""}, "no image in them")],
    )
    def test_says_what_is_wrong(self, tmp_path, files, message):
        write(tmp_path / "data", files) if files else None
        with pytest.raises(DataError, match=message):
            open_source(folder(tmp_path / "data"))


class TestManifest:
    def manifest(self, tmp_path, text, **keys):
        (tmp_path / "m.csv").write_text(text, encoding="utf-8")
        return open_source(ManifestSource(kind="manifest", path=str(tmp_path / "m.csv"), **keys))

    def test_reads_paths_and_labels(self, tmp_path):
        write(tmp_path, {"1.jpg": b"1", "2, two.jpg": b"2", "3.jpg": b"3"})
        source = self.manifest(
            tmp_path, '\ufeffid,label,path\n9,dog,1.jpg\n8,cat,"2, two.jpg"\n\n7,dog,3.jpg\n'
        )
        assert source.class_names == ("cat", "dog")
        assert source.labels.tolist() == [1, 0, 1]
        assert [source.read(k).encoded for k in range(3)] == [b"1", b"2", b"3"]

    def test_root_and_columns(self, tmp_path):
        write(tmp_path, {"images/1.jpg": b"1"})
        source = self.manifest(
            tmp_path, "f,c\n1.jpg,a\n", root=str(tmp_path / "images"), path_column="f", label_column="c"
        )
        assert source.read(0).encoded == b"1"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "no column 'path'"),
            ("path,class\nx,y\n", "no column 'label' in its first line, only path, class"),
            ("path,label\nx\n", r"m\.csv:2: lacks a path or a label"),
            ("path,label\nx,a\n,b\n", r"m\.csv:3: lacks"),
            ("path,label\n", "lists no image"),
        ],
    )
    def test_says_what_is_wrong(self, tmp_path, text, message):
        with pytest.raises(DataError, match=message):
            self.manifest(tmp_path, text)


class TestArrays:
    def images(self, count=5):
        return np.random.default_rng(0).integers(0, 256, (count, 6, 7, 3)).astype(np.uint8)

    @pytest.mark.parametrize("packed", [True, False])
    def test_maps_images(self, tmp_path, packed):
        images, labels = self.images(), np.array([0, 2, 1, 9, -1])
        if packed:
            np.savez(tmp_path / "a.npz", images=images, labels=labels[:5])
            section = ArraysSource(kind="arrays", path=str(tmp_path / "a.npz"))
        else:
            np.save(tmp_path / "i.npy", images)
            np.save(tmp_path / "l.npy", labels)
            section = ArraysSource(
                kind="arrays", path=str(tmp_path / "i.npy"), labels=str(tmp_path / "l.npy")
            )
        source = open_source(section)
        assert source.class_names == tuple(map(str, range(10)))
        assert source.labels.tolist() == [0, 2, 1, 9, -1]
        for k in range(5):
            assert np.array_equal(source.read(k).pixels, images[k])
        three = open_source(section, split="validation", class_names=("0", "1", "2"))
        assert three.labels.tolist() == [0, 2, 1, -1, -1]

    def test_gray_becomes_three_channels(self, tmp_path):
        gray = self.images()[..., 0]
        np.savez(tmp_path / "a.npz", images=gray, labels=np.zeros(5, int))
        pixels = open_source(ArraysSource(kind="arrays", path=str(tmp_path / "a.npz"))).read(2).pixels
        assert np.array_equal(pixels, np.stack([gray[2]] * 3, axis=-1))

    @pytest.mark.parametrize(
        ("save", "message"),
        [
            (lambda p, i: np.savez_compressed(p, images=i, labels=np.zeros(5, int)), "is compressed"),
            (lambda p, i: np.savez(p, x=i), "holds x, but no array 'images'"),
            (lambda p, i: np.savez(p, images=i / 255.0, labels=np.zeros(5, int)), "float64"),
            (lambda p, i: np.savez(p, images=i, labels=np.zeros(4, int)), "5 images, but labels"),
            (lambda p, i: p.write_bytes(b"PK"), "cannot be read"),
            (
                lambda p, i: np.savez(p, images=i, labels=np.array([{}] * 5, object)),
                "Python objects",
            ),
        ],
    )
    def test_says_what_is_wrong(self, tmp_path, save, message):
        save(tmp_path / "a.npz", self.images())
        with pytest.raises(DataError, match=message):
            open_source(ArraysSource(kind="arrays", path=str(tmp_path / "a.npz")))


class TestForeignRecords:
    """Shards as the ImageNet scripts write them: labels from 1."""

    def write_shards(self, root, shards=2, each=3):
        number = 0
        for shard in range(shards):
            with (root / f"train-{shard:05d}-of-{shards:05d}").open("wb") as file:
                for _ in range(each):
                    features = {"image/class/label": number % 3 + 1, "image/encoded": b"image %d" % number}
                    features["image/filename"] = b"n%d.JPEG" % number
                    record = encode_example(features)
                    file.write(record.join(frame(record)))
                    number += 1
        return RecordsSource(kind="records", path=str(root), first_label=1)

    def test_reads_any_sample_and_keeps_the_index(self, tmp_path):
        section = self.write_shards(tmp_path)
        source = open_source(section)
        assert source.class_names == ("1", "2", "3")
        assert source.labels.tolist() == [0, 1, 2, 0, 1, 2]
        assert [source.read(k).encoded for k in (5, 0, 3)] == [b"image 5", b"image 0", b"image 3"]
        assert source.name(4).endswith("(n4.JPEG)")
        (head,) = tmp_path.glob(".distxcept-index-*.json")
        before = head.stat().st_mtime_ns
        assert open_source(section).digest() == source.digest()
        assert head.stat().st_mtime_ns == before

    def test_a_changed_shard_is_indexed_anew(self, tmp_path):
        section = self.write_shards(tmp_path)
        assert len(open_source(section)) == 6
        self.write_shards(tmp_path, each=4)
        assert len(open_source(section)) == 8

    def test_a_pattern_chooses_shards(self, tmp_path):
        self.write_shards(tmp_path)
        section = RecordsSource(kind="records", path=f"{tmp_path}/train-00001-*", first_label=1)
        assert open_source(section).read(0).encoded == b"image 3"

    def test_bytes_that_changed_after_indexing_are_bad(self, tmp_path):
        section = self.write_shards(tmp_path)
        source = open_source(section)
        shard = tmp_path / "train-00000-of-00002"
        shard.write_bytes(shard.read_bytes().replace(b"image 1", b"imaqe 1"))
        with pytest.raises(BadSample, match="wrong CRC"):
            source.read(1)
        assert source.read(2).encoded == b"image 2"

    def test_labels_out_of_range(self, tmp_path):
        section = self.write_shards(tmp_path)
        with pytest.raises(DataError, match="labels run from 1 to 3, but first_label is 2"):
            open_source(section.model_copy(update={"first_label": 2}))
        source = open_source(section, split="validation", class_names=("1", "2"))
        assert source.labels.tolist() == [0, 1, -1, 0, 1, -1]

    def test_read_only_folders_need_an_index_elsewhere(self, tmp_path):
        section = self.write_shards(tmp_path)
        kept = section.model_copy(update={"index": str(tmp_path / "none" / "i.json")})
        with pytest.raises(DataError, match="set index to a file"):
            open_source(kept)
        (tmp_path / "none").mkdir()
        assert len(open_source(kept)) == 6
        assert (tmp_path / "none" / "i.json").is_file()


class TestSplit:
    def data(self, root, **keys):
        return DataSection(train=folder(root), **keys)

    def test_is_a_partition_of_about_the_fraction_and_stable(self, tmp_path):
        write(tmp_path, {f"{k % 4}/{k}.jpg": b"" for k in range(400)})
        train, validation = open_sources(self.data(tmp_path, validation_fraction=0.25))
        sides = set(names_below(train, tmp_path)), set(names_below(validation, tmp_path))
        assert len(train) + len(validation) == 400
        assert not sides[0] & sides[1]
        assert 65 < len(validation) < 135
        write(tmp_path, {f"{k % 4}/more{k}.jpg": b"" for k in range(100)})
        grown = open_sources(self.data(tmp_path, validation_fraction=0.25))
        assert sides[0] < set(names_below(grown[0], tmp_path))
        assert sides[1] < set(names_below(grown[1], tmp_path))
        assert validation.labels.tolist() == [int(n.split("/")[0]) for n in names_below(validation, tmp_path)]

    def test_an_empty_side_is_an_error(self, tmp_path):
        write(tmp_path, {"a/1.jpg": b"", "a/2.jpg": b""})
        with pytest.raises(DataError, match="leaves one side empty"):
            open_sources(self.data(tmp_path, validation_fraction=0.001))

    def test_without_a_fraction_there_is_no_validation(self, tmp_path):
        write(tmp_path, {"a/1.jpg": b""})
        train, validation = open_sources(self.data(tmp_path))
        assert len(train) == 1
        assert validation is None
        section = DataSection(
            train=SyntheticSource(kind="synthetic", samples=4, classes=2),
            validation=SyntheticSource(kind="synthetic", samples=2, classes=2),
        )
        train, validation = open_sources(section)
        assert (len(train), len(validation)) == (4, 2)
