"""The compiled kernel against TensorFlow, bit for bit; and that nothing breaks where it cannot be built."""

import shutil

import numpy as np
import pytest

from distxcept.data.scaling import bilinear
from distxcept.data.scaling.build import COMPILERS, SOURCE, build, library

needs_compiler = pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C compiler")
RANDOM = np.random.default_rng(0)
SHAPES = [(1, 1), (1, 7), (7, 1), (2, 3), (71, 299), (299, 71), (375, 500), (640, 97)]
SHAPES += [tuple(map(int, RANDOM.integers(1, 700, 2))) for _ in range(30)]


def noise(height, width):
    return RANDOM.integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    source = tmp_path_factory.mktemp("kernel") / SOURCE.name
    shutil.copy(SOURCE, source)
    made = build(source)
    assert made == library(source)
    assert sorted(path.name for path in source.parent.iterdir()) == sorted([SOURCE.name, made.name])
    scale = bilinear.load(made)
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
def test_a_kernel_with_other_bits_is_not_used(tmp_path):
    source = tmp_path / SOURCE.name
    text = SOURCE.read_text()
    assert text.count("+ 0.5f;\n    for") == 1
    source.write_text(text.replace("+ 0.5f;\n    for", "+ 0.4375f;\n    for"))
    made = build(source)
    assert made is not None
    assert bilinear.load(made) is None


def test_without_compiler_nothing_is_built_and_nothing_breaks(tmp_path, monkeypatch, capfd):
    source = tmp_path / SOURCE.name
    shutil.copy(SOURCE, source)
    monkeypatch.setenv("CC", str(tmp_path / "no-such-compiler"))
    assert build(source) is None
    assert "images are scaled slower" in capfd.readouterr().err
    monkeypatch.setenv("CC", "")
    monkeypatch.setenv("PATH", "")
    assert build(source) is None
    assert "no C compiler" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [SOURCE.name]
    assert bilinear.load(library(source)) is None
    (tmp_path / "text.so").write_text("not a library")
    assert bilinear.load(tmp_path / "text.so") is None
