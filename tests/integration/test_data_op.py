"""The compiled image operations against plain TensorFlow and Python, bit for bit; how they are built; life without."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import decoder_torture
import numpy as np
import odd_files
import pytest
import tensorflow as tf

from distxcept.data import op
from distxcept.data.decode import encode_raw, fill, upright_sizes
from distxcept.data.header import inspect
from distxcept.data.op import plain
from distxcept.data.op.build import COMPILERS, FOLDER, CannotBuildError, build, library_name
from distxcept.data.sources.base import BadSample

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, COMPILERS)), reason="no C++ compiler: apt-get install g++"
)
LIMIT = 10**7
SOURCES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".cc", ".h"))


@pytest.fixture(scope="module")
def compiled():
    module = op.library()
    assert module is not None
    return module


def noise(random, height, width):
    return random.integers(0, 256, (height, width, 3), dtype=np.uint8)


def random_window(random, height, width):
    tall, wide = random.integers(1, height + 1), random.integers(1, width + 1)
    return random.integers(0, height - tall + 1), random.integers(0, width - wide + 1), tall, wide


def both(compiled, contents, windows, flips, size, raw):
    """What the operations give and what the plain ones do: sizes, details, images, status."""
    contents = tf.constant(contents)
    windows, flips = tf.constant(windows, tf.int32), tf.constant(flips)
    how = {"raw": raw, "max_pixels": LIMIT}
    ours = [
        *compiled.distxcept_inspect(contents=contents, **how),
        *compiled.distxcept_fill(contents=contents, windows=windows, flips=flips, size=size, **how),
    ]
    theirs = [
        *plain.inspect_all(contents, **how),
        *plain.fill(contents, windows, flips, size=size, interpolation="bilinear", **how),
    ]
    return [part.numpy() for part in ours], [part.numpy() for part in theirs]


def check_equal(ours, theirs):
    for name, one, other in zip(("sizes", "details", "images", "status"), ours, theirs, strict=False):
        assert np.array_equal(one, other), name


@pytest.mark.parametrize("size", [1, 2, 32, 71, 150])
def test_jpeg_windows_have_the_bits_of_tensorflow(compiled, size):
    """Progressive, grey and of all subsamplings, turned and not, at every scale of the decoder and between."""
    random = np.random.default_rng(size)
    contents, windows = [], []
    for number in range(64):
        height, width = (int(side) for side in random.integers(1, [1500, 90][number % 2], 2))
        image = odd_files.picture(number, width, height)
        if number % 3 == 0:
            image = image.convert("L")
        options = {"progressive": bool(number % 4 == 1), "quality": int(random.integers(20, 96))}
        if image.mode == "RGB":
            options["subsampling"] = number % 5 % 3
        orientation = number % 9
        if orientation:
            options["exif"] = odd_files.exif(orientation)
        contents.append(odd_files.encode(image, "JPEG", **options))
        upright = (width, height) if orientation >= 5 else (height, width)
        windows.append(random_window(random, *upright))
    flips = random.random(len(contents)) < 0.5
    ours, theirs = both(compiled, contents, windows, flips, size, raw=False)
    check_equal(ours, theirs)
    assert (ours[-1] == plain.DONE).all()
    assert ours[2].any()


@pytest.mark.parametrize("size", [1, 3, 47, 71])
def test_raw_pixels_have_the_bits_of_tensorflow(compiled, size):
    random = np.random.default_rng(size)
    shapes = [(1, 1), (1, 7), (7, 1), (2, 3), (71, 71), (71, 299), (299, 71), (640, 97)]
    shapes += [tuple(map(int, random.integers(1, 700, 2))) for _ in range(24)]
    contents = [encode_raw(noise(random, *shape)) for shape in shapes] * 2
    windows = [(0, 0, *shape) for shape in shapes] + [random_window(random, *shape) for shape in shapes]
    flips = random.random(len(contents)) < 0.5
    ours, theirs = both(compiled, contents, windows, flips, size, raw=True)
    check_equal(ours, theirs)
    assert (ours[-1] == plain.DONE).all()


def test_headers_are_read_as_in_python(compiled):
    """Every odd file, thousands of damaged ones, and every beginning of some."""
    contents = [
        content for content, *_ in [*odd_files.good_files().values(), *odd_files.bad_files().values()]
    ]
    for name in (
        "turned6.jpg",
        "turned5.jpg",
        "turned6.png",
        "turned8.webp",
        "plain.bmp",
        "moving.gif",
        "lossy.webp",
    ):
        content = odd_files.good_files()[name][0]
        contents += [content[:end] for end in range(min(len(content), 300))]
    contents += decoder_torture.mutated(6000, 3)
    found = compiled.distxcept_inspect(contents=tf.constant(contents), raw=False, max_pixels=20_000)
    usable = 0
    for content, size, (kind, orientation) in zip(contents, *(part.numpy() for part in found), strict=True):
        try:
            header = inspect(content, max_pixels=20_000)
        except BadSample:
            assert (*size, kind, orientation) == (0, 0, plain.UNUSABLE, 1)
            continue
        usable += 1
        direct = header.kind == "jpeg" and header.components in (1, 3)
        assert (*size[::-1], orientation) == (*header.upright, header.orientation)
        assert kind == (plain.DIRECT if direct else plain.OTHER)
    assert 1000 < usable < len(contents) - 1000


def test_raw_headers_are_read_as_in_python(compiled):
    good = encode_raw(np.zeros((5, 7, 3), np.uint8))
    contents = [good, good[:-1], good + b"\0", b"", good[:12], good[:7], b"DXRV" + good[4:]]
    contents += [good[:4] + np.array(pair, "<i4").tobytes() + good[12:] for pair in
                 [(7, 5), (0, 0), (-5, -7), (2**30, 4), (2**31 - 1, 2**31 - 1), (35, 1)]]  # fmt: skip
    how = {"raw": True, "max_pixels": 1}
    ours = compiled.distxcept_inspect(contents=tf.constant(contents), **how)
    theirs = plain.inspect_all(tf.constant(contents), **how)
    check_equal(ours, theirs)
    assert ours[0].numpy().any(1).tolist() == [True, *[False] * 6, True, *[False] * 4, True]


@pytest.mark.parametrize(
    "window",
    [(0, 0, 91, 50), (0, 0, 50, 121), (-1, 0, 10, 10), (0, -1, 10, 10), (0, 0, 0, 0), (0, 0, 0, 5), (3, 3, -1, 5),
     (2**31 - 1, 0, 2**31 - 1, 1), (-(2**31), 0, -(2**31), 5), (0, 119, 1, 2)],
)  # fmt: skip
def test_windows_outside_are_broken_and_harm_no_other(compiled, window):
    jpeg, png = (odd_files.good_files()[name][0] for name in ("plain.jpg", "gray.png"))
    raw = encode_raw(np.asarray(odd_files.picture()))
    for content, is_raw in ((jpeg, False), (png, False), (raw, True)):
        arguments = ([content] * 3, [(0, 0, 90, 120), window, (0, 0, 90, 120)], [False] * 3, 31, is_raw)
        ours, theirs = both(compiled, *arguments)
        check_equal(ours, theirs)
        expected = plain.NEEDS_PILLOW if content is png else plain.DONE
        assert ours[3].tolist() == [expected, plain.BROKEN, expected]
        assert not ours[2][1].any() and np.array_equal(ours[2][0], ours[2][2])
        images, ok = fill(
            *map(tf.constant, arguments[:3]), **{"size": 31, "raw": is_raw, "max_pixels": LIMIT}
        )
        assert ok.numpy().tolist() == [True, False, True]
        assert images[0].numpy().any() and not images[1].numpy().any()


def test_each_odd_file_gets_its_status(compiled):
    good, bad = odd_files.good_files(), odd_files.bad_files()
    # Without its quantisation tables it passes the header check and fails in the decoder.
    bad["no_tables.jpg"] = (good["plain.jpg"][0].replace(b"\xff\xdb", b"\xff\xfe"), "")
    names = [*good, *bad]
    contents = [(good.get(name) or bad[name])[0] for name in names]
    ours, theirs = both(
        compiled, contents, [(7, 22, 61, 75)] * len(names), [False] * len(names), 31, raw=False
    )
    check_equal(ours, theirs)
    status = dict(zip(names, ours[3].tolist(), strict=True))
    direct = {"plain.jpg", "progressive.jpg", "full_chroma.jpg", "gray.jpg", "trailing.jpg", "no_extension"}
    direct |= {f"turned{orientation}.jpg" for orientation in range(1, 9)}
    assert {name for name, found in status.items() if found == plain.DONE} == direct
    # Of these Pillow has to say whether they can be decoded.
    unclear = {"truncated.png", "flipped.png", "truncated.gif", "truncated.bmp", "truncated.webp"}
    with_pillow = {name for name, found in status.items() if found == plain.NEEDS_PILLOW}
    assert with_pillow == unclear | set(good) - direct
    assert all(not image.any() for image, found in zip(ours[2], ours[3], strict=True) if found != plain.DONE)


def run(code, **environment):
    """A program of its own: a process keeps the operations that it has loaded."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **{k: str(v) for k, v in environment.items()}},
    )


def copied(folder):
    folder.mkdir(exist_ok=True)
    for name in SOURCES:
        shutil.copy(FOLDER / name, folder)
    return folder


BUILD_AND_LOAD = """
import os
from pathlib import Path
from distxcept.data import op
from distxcept.data.op import build
try:
    op.load(build.build(Path(os.environ["SOURCES"])))
    print("loaded")
except build.CannotBuildError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("scaling.h", "(float)source[k] + 0.5f", "(float)source[k] + 0.4375f"),
        ("images.cc", "JDCT_IFAST", "JDCT_ISLOW"),
    ],
)
def test_a_library_with_other_bits_is_not_used(tmp_path, name, right, wrong):
    source = copied(tmp_path) / name
    text = source.read_text()
    assert text.count(right) == 1
    source.write_text(text.replace(right, wrong))
    ended = run(BUILD_AND_LOAD, SOURCES=tmp_path)
    assert "gives other pixels than TensorFlow" in ended.stdout, ended.stderr


def test_many_processes_build_once(tmp_path):
    """All at the same time; each loads the whole library."""
    log = tmp_path / "calls"
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho called >>{log}\nexec {shutil.which("c++")} "$@"\n')
    compiler.chmod(0o755)
    folder = copied(tmp_path / "sources")
    (
        folder / library_name(folder).replace(library_name(folder).split("-")[2], "01234567")
    ).touch()  # an older one
    environment = {**os.environ, "SOURCES": str(folder), "CXX": str(compiler), "TF_CPP_MIN_LOG_LEVEL": "3"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BUILD_AND_LOAD], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    assert [process.communicate(timeout=300)[0] for process in processes] == ["loaded\n"] * 3
    assert log.read_text() == "called\n"
    assert sorted(path.name for path in folder.iterdir()) == sorted([*SOURCES, library_name(folder)])


def test_a_failure_is_not_repeated_by_those_who_waited(tmp_path, monkeypatch, capfd):
    log = tmp_path / "calls"
    compiler = tmp_path / "compiler"
    compiler.write_text(
        f"#!/bin/sh\necho called >>{log}\nsleep 3\necho 'x.cc:1: error: no such thing' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    folder = copied(tmp_path / "sources")
    code = "import os, time; from pathlib import Path\n" + BUILD_AND_LOAD
    environment = {**os.environ, "SOURCES": str(folder), "CXX": str(compiler), "TF_CPP_MIN_LOG_LEVEL": "3"}
    other = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    while not log.exists():
        time.sleep(0.01)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(CannotBuildError, match="error: no such thing"):
        build(folder)
    assert "error: no such thing" in other.communicate(timeout=60)[0]
    assert log.read_text() == "called\n"
    with pytest.raises(CannotBuildError):  # but a later start tries again
        build(folder)
    assert log.read_text() == "called\n" * 2
    assert "compiling the image operation (once)" in capfd.readouterr().err


def test_a_read_only_package_builds_into_the_cache_folder(tmp_path, monkeypatch):
    folder = copied(tmp_path / "sources")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = os.access  # root may write anywhere
    monkeypatch.setattr("os.access", lambda path, mode: path != folder and real(path, mode))
    made = build(folder)
    assert made == tmp_path / "cache" / "distxcept" / library_name(folder)
    assert build(folder) == made
    assert sorted(path.name for path in folder.iterdir()) == SOURCES


def test_without_a_compiler(tmp_path, monkeypatch):
    folder = copied(tmp_path / "sources")
    for compiler, path in ((str(tmp_path / "no-such-compiler"), os.environ["PATH"]), ("", "")):
        monkeypatch.setenv("CXX", compiler)
        monkeypatch.setenv("PATH", path)
        with pytest.raises(CannotBuildError, match="no C\\+\\+ compiler"):
            build(folder)
    assert sorted(path.name for path in folder.iterdir()) == SOURCES


def test_what_does_not_load_is_told(tmp_path):
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(CannotBuildError, match="does not load"):
        op.load(tmp_path / "text.so")


WITHOUT = """
import sys
import numpy as np, tensorflow as tf
from distxcept.data import op
from distxcept.data.decode import fill, upright_sizes
from distxcept.data.op import build
def cannot(folder=None):
    raise build.CannotBuildError("no C++ compiler")
build.build = cannot
contents = tf.constant([open(sys.argv[0] or "{path}", "rb").read()])
sizes = upright_sizes(contents, raw=False, max_pixels=10**6)
images, ok = fill(contents, tf.concat([[[0, 0]], sizes], 1), tf.constant([False]), size=31, raw=False, max_pixels=10**6)
print(op.library(), ok.numpy().tolist(), int(images.numpy().sum()))
"""


@pytest.mark.parametrize("switch", ["on", "off"])
def test_images_are_read_without_the_library_too(compiled, tmp_path, switch):
    path = tmp_path / "plain.jpg"
    path.write_bytes(odd_files.good_files()["plain.jpg"][0])
    code = WITHOUT.replace('sys.argv[0] or "{path}"', repr(str(path)))
    ended = run(code, DISTXCEPT_OP=switch)
    contents = tf.constant([path.read_bytes()])
    windows = tf.concat([[[0, 0]], upright_sizes(contents, raw=False, max_pixels=LIMIT)], 1)
    images, _ = fill(contents, windows, tf.constant([False]), size=31, raw=False, max_pixels=LIMIT)
    assert ended.stdout == f"None [True] {int(images.numpy().sum())}\n", ended.stderr
    assert ("images are read slower" in ended.stderr) == (switch == "on")


MEMORY = """
import resource, sys
import numpy as np, tensorflow as tf
from distxcept.data import op
from distxcept.data.decode import fill
assert op.library() is not None
jpeg = tf.io.encode_jpeg(np.zeros((2000, 8000, 1), np.uint8)).numpy()
contents, flips = tf.constant([jpeg]), tf.constant([False])
def run(side):
    window = tf.constant([[0, 0, side, 4 * side]])
    return fill(contents, window, flips, size=1000, raw=False, max_pixels=10**8)[1].numpy().tolist()
run(10)
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + 30 * 2**20, resource.RLIM_INFINITY))
try:
    print(run(1900))
except tf.errors.ResourceExhaustedError:
    print("exhausted")
resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY,) * 2)
print(run(1900))
"""


def test_want_of_memory_fails_the_operation_and_not_the_process(compiled):
    """And not the sample: it says nothing about that. The window takes 46 MB."""
    ended = run(MEMORY)
    assert ended.stdout == "exhausted\n[True]\n", ended.stderr[-2000:]


def test_building_by_hand_tells_where():
    ended = subprocess.run(
        [sys.executable, "-m", "distxcept.data.op.build"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert Path(ended.stdout.strip()).name == library_name()
    assert "RuntimeWarning" not in ended.stderr
