"""The compiled kernel against TensorFlow, bit for bit; and that nothing breaks where it cannot be built."""

import shutil

import numpy as np
import odd_files
import pytest

from distxcept.data.augment import PLAIN, View
from distxcept.data.decode import render, render_all
from distxcept.data.scaling import bilinear, jpeg
from distxcept.data.scaling.build import COMPILERS, FOLDER, build, library
from distxcept.data.sources.base import BadSample, Sample
from distxcept.data.window import Window, centre_square

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, COMPILERS)), reason="no C++ compiler: apt-get install g++"
)
SOURCES = ["bilinear.cc", "bilinear.h", "jpeg.cc"]
RANDOM = np.random.default_rng(0)
SHAPES = [(1, 1), (1, 7), (7, 1), (2, 3), (71, 299), (299, 71), (375, 500), (640, 97)]
SHAPES += [tuple(map(int, RANDOM.integers(1, 700, 2))) for _ in range(30)]


def noise(height, width):
    return RANDOM.integers(0, 256, (height, width, 3), dtype=np.uint8)


def copied(folder):
    for name in SOURCES:
        shutil.copy(FOLDER / name, folder)
    return folder


@pytest.fixture(scope="module")
def library_file(tmp_path_factory):
    folder = copied(tmp_path_factory.mktemp("kernel"))
    made = build(folder)
    assert made == library(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*SOURCES, made.name])
    return made


@pytest.fixture(scope="module")
def kernel(library_file):
    scale = bilinear.load(library_file)
    assert scale is not None
    return scale


def both(kernel, patch, size, mirrored):
    results = [np.full((size, size, 3), fill, np.uint8) for fill in (7, 99)]
    kernel(patch, results[0], mirrored)
    bilinear.scale_with_tensorflow(patch, results[1], mirrored)
    return results


@needs_compiler
@pytest.mark.parametrize("size", [1, 2, 71, 299])
@pytest.mark.parametrize("mirrored", [False, True])
def test_the_kernel_gives_the_bits_of_tensorflow(kernel, size, mirrored):
    for shape in SHAPES:
        ours, theirs = both(kernel, noise(*shape), size, mirrored)
        assert np.array_equal(ours, theirs), shape


@needs_compiler
def test_any_memory_layout(kernel):
    whole = noise(90, 120)
    for patch in (
        whole[10:70, 20:95],
        whole[::-1],
        whole[:, ::-1],
        whole.swapaxes(0, 1)[5:40],
        whole[::2],
        whole[..., ::-1],
    ):
        ours, theirs = both(kernel, patch, 47, False)
        assert np.array_equal(ours, theirs)


@needs_compiler
def test_writes_nothing_but_its_square(kernel):
    batch = np.full((3, 71, 71, 3), 123, np.uint8)
    kernel(noise(60, 80), batch[1], True)
    assert (batch[[0, 2]] == 123).all()


@needs_compiler
@pytest.mark.parametrize("size", [71, 150])
def test_a_group_gives_the_bits_of_one_by_one(library_file, monkeypatch, size):
    """Every odd file in one group: JPEG of all kinds, what is no JPEG, and what is broken."""
    group = jpeg.load(library_file)
    assert group is not None
    handed_over = []
    monkeypatch.setattr(
        "distxcept.data.decode.group_kernel", lambda: lambda jobs: handed_over.extend(jobs) or group(jobs)
    )
    files = [content for content, *_ in odd_files.good_files().values()]
    files += [content for content, _ in odd_files.bad_files().values()]
    files += [
        odd_files.encode(odd_files.picture(seed, 1400, 1100), "JPEG", quality=80, **options)
        for seed, options in enumerate(({}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 1}))
    ]
    samples = [Sample(encoded=content) for content in files]
    views = [
        PLAIN if n % 3 else View(lambda width, height: Window(7, 22, 61, 75), flip=True)
        for n in range(len(files))
    ]
    outs, expected = np.full((2, len(files), size, size, 3), 5, np.uint8)
    results = render_all(samples, views, list(outs), max_pixels=10**7)
    assert len(handed_over) >= 8
    for place, (sample, view) in enumerate(zip(samples, views, strict=True)):
        try:
            assert results[place] == render(sample, view, expected[place], max_pixels=10**7)
            assert np.array_equal(outs[place], expected[place])
        except BadSample as error:
            assert repr(results[place]) == repr(error)


@needs_compiler
def test_a_group_tells_broken_ones_and_goes_on(library_file):
    group = jpeg.load(library_file)
    good = odd_files.encode(odd_files.picture(1, 300, 200), "JPEG")
    outs = np.full((4, 71, 71, 3), 123, np.uint8)
    crop, outside = jpeg.Crop(0, 0, 200, 200, 1), jpeg.Crop(0, 150, 200, 200, 1)
    contents = [(good, crop), (good[:300] + bytes(2000), crop), (good, outside), (good, crop)]
    found = group([jpeg.Job(data, at, False, out) for (data, at), out in zip(contents, outs, strict=True)])
    assert [type(error) for error in found] == [type(None), BadSample, BadSample, type(None)]
    assert np.array_equal(outs[0], outs[3]) and (outs[1:3] == 123).all()


def test_a_change_that_fails_is_the_matter_of_its_sample():
    """In a group too, with the kernel or without."""
    good = odd_files.encode(odd_files.picture(1, 300, 200), "JPEG")

    def fail(pixels):
        raise ValueError("no such change")

    outs = np.zeros((3, 71, 71, 3), np.uint8)
    views = [PLAIN, View(centre_square, effects=(fail,)), PLAIN]
    results = render_all([Sample(encoded=good)] * 3, views, list(outs), max_pixels=10**7)
    assert [type(result) for result in results] == [int, ValueError, int]
    assert outs[0].any() and np.array_equal(outs[0], outs[2])


@needs_compiler
def test_a_group_needs_a_known_tensorflow(library_file):
    assert jpeg.load(library_file, version="2.22.0") is None


@needs_compiler
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("bilinear.cc", ("+ 0.5f;\n    for", "+ 0.4375f;\n    for")),
        ("jpeg.cc", ("kFastIntegers = 1", "kFastIntegers = 0")),
        ("jpeg.cc", ("image.left, image.top", "image.top, image.left")),
    ],
)
def test_a_kernel_with_other_bits_is_not_used(tmp_path, name, wrong):
    source = copied(tmp_path) / name
    text = source.read_text()
    assert text.count(wrong[0]) == 1
    source.write_text(text.replace(*wrong))
    made = build(tmp_path)
    assert made is not None
    assert jpeg.load(made) is None
    assert (bilinear.load(made) is None) == (name == "bilinear.cc")


def test_without_compiler_nothing_is_built_and_nothing_breaks(tmp_path, monkeypatch, capfd):
    copied(tmp_path)
    monkeypatch.setenv("CXX", str(tmp_path / "no-such-compiler"))
    assert build(tmp_path) is None
    assert "images are read slower" in capfd.readouterr().err
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", "")
    assert build(tmp_path) is None
    assert "no C++ compiler" in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == SOURCES
    (tmp_path / "text.so").write_text("not a library")
    for path in (library(tmp_path), tmp_path / "text.so"):
        assert bilinear.load(path) is None and jpeg.load(path) is None
