"""Files by path or URL: one behaviour for both, and errors that say what to do."""

import errno
import itertools
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from distxcept.config.schema import ArraysSource, FolderSource, ManifestSource, RecordsSource
from distxcept.data import files
from distxcept.data.sources import open_source
from distxcept.errors import DataError

_fresh = itertools.count()


@pytest.fixture(params=["local", "remote"])
def root(request, tmp_path):
    path = str(tmp_path / "root") if request.param == "local" else f"ram://files{next(_fresh)}/root"
    files.make_folder(path)
    return path


@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        ("gs://bucket/x", "gs"),
        ("ram://x", "ram"),
        (b"s3://b/\xff", "s3"),
        ("/gs://x", ""),
        ("x/gs://b", ""),
        ("gs:/x", ""),
        ("1a://x", ""),
        ("", ""),
    ],
)
def test_schemes(path, scheme):
    assert files.scheme_of(path) == scheme
    assert files.is_remote(path) == bool(scheme)


@pytest.mark.parametrize(
    ("folder", "name", "joined"),
    [
        ("a", "b", "a/b"),
        ("a", "/b", "/b"),
        (".", "b", "./b"),
        ("gs://a", "b", "gs://a/b"),
        ("gs://a/", "b/c", "gs://a/b/c"),
        ("gs://a", "/b", "/b"),
        ("a", "gs://b", "gs://b"),
        ("gs://a", "gs://b", "gs://b"),
        ("gs://a", "", "gs://a/"),
    ],
)
def test_join(folder, name, joined):
    assert files.join(folder, name) == joined


def test_parts_of_a_path_keep_the_scheme():
    assert files.tidy("gs://a//b/") == "gs://a//b/"
    assert files.tidy("./a//b/") == "a/b"
    parents = [files.parent_of(path) for path in ("gs://a/b/c.csv", "gs://a/b", "a/b", "b", "/b")]
    assert parents == ["gs://a/b", "gs://a", "a", ".", "/"]
    assert [files.name_of(path) for path in ("gs://a/b/c.csv", "gs://a/b/", "b")] == ["c.csv", "b", "b"]


def test_what_is_there(root):
    files.make_folder(files.join(root, "deep/er"))
    files.make_folder(root)
    files.write_aside(files.join(root, "x.txt"), lambda file: file.write(b"0123456789"))
    path = files.join(root, "x.txt")
    assert [f(path) for f in (files.exists, files.is_file, files.is_dir)] == [True, True, False]
    assert [f(root) for f in (files.exists, files.is_file, files.is_dir)] == [True, False, True]
    nothing = files.join(root, "none")
    assert [f(nothing) for f in (files.exists, files.is_file, files.is_dir)] == [False] * 3
    assert (files.size(path), files.sizes([path, path])) == (10, [10, 10])
    assert [files.read(path), files.read(path, 3), files.read(path, 3, 4), files.read(path, 8, 9)] == [
        b"0123456789",
        b"3456789",
        b"3456",
        b"89",
    ]
    assert sorted(files.list_names(root)) == ["deep", "x.txt"]
    assert files.list_files(root) == ["x.txt"]
    assert files.find(files.join(root, "x*")) == [path]
    for ask in (files.size, files.read, files.list_names, files.remove):
        with pytest.raises(FileNotFoundError) as caught:
            ask(nothing)
        assert files.problem(caught.value) == f"{nothing}: No such file or directory; check the name"
    files.remove(path)
    assert files.list_names(root) == ["deep"]


def test_nobody_sees_half_a_file(root):
    path = files.join(root, "x")

    def write_half(file):
        file.write(b"ha")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        files.write_aside(path, write_half)
    assert files.list_names(root) == []
    files.write_aside(path, lambda file: file.write(b"first"))
    with pytest.raises(OSError, match="No space"):
        files.write_aside(path, write_half, mark="part")
    assert files.read(path) == b"first"
    files.write_aside(path, lambda file: file.write(b"second"), mark="part")
    assert files.read(path) == b"second"
    assert files.list_names(root) == ["x"]


@pytest.mark.parametrize(
    ("error", "number", "words"),
    [
        (tf.errors.NotFoundError, errno.ENOENT, "No such file or directory; check the name"),
        (
            tf.errors.PermissionDeniedError,
            errno.EACCES,
            "Permission denied (gone far away); ask for the right",
        ),
        (tf.errors.UnauthenticatedError, errno.EACCES, "log in first"),
        (tf.errors.UnavailableError, errno.EAGAIN, "try again later"),
        (tf.errors.DeadlineExceededError, errno.ETIMEDOUT, "check the network"),
        (tf.errors.InternalError, errno.EIO, "Input/output error (gone far away); check the network"),
    ],
)
def test_errors_of_tensorflow_become_those_of_the_system(monkeypatch, error, number, words):
    def fail(*_):
        raise error(None, None, "gone\nfar away")

    monkeypatch.setattr(tf.io.gfile, "listdir", fail)
    with pytest.raises(OSError) as caught:
        files.list_names("ram://x")
    assert caught.value.errno == number
    assert files.problem(caught.value).startswith("ram://x: ")
    assert words in files.problem(caught.value)


SECTIONS = [
    lambda path: FolderSource(kind="folder", path=path),
    lambda path: ManifestSource(kind="manifest", path=path),
    lambda path: RecordsSource(kind="records", path=path),
]


@pytest.mark.parametrize("section", SECTIONS)
def test_an_unknown_scheme_is_told_with_the_package_that_knows_it(section):
    with pytest.raises(
        DataError, match=r"^data\.train\.path: .*s3://bucket/x.*: TensorFlow has no file system for s3://"
    ) as told:
        open_source(section("s3://bucket/x"))
    assert "tensorflow-io" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("section", "message"),
    list(
        zip(
            SECTIONS,
            ["is not a folder", "No such file or directory; check the name", "no TFRecord files at"],
            strict=True,
        )
    ),
)
def test_nothing_at_a_url(section, message):
    with pytest.raises(
        DataError, match=rf"^data\.train\.path: .*ram://nothing/here.*{message}|{message}.*ram://nothing/here"
    ):
        open_source(section("ram://nothing/here"))


def test_no_permission_is_told(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()

    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(
        DataError, match=r"data\.train\.path: .*: Permission denied; ask for the right to use it"
    ):
        open_source(FolderSource(kind="folder", path=str(tmp_path)))


def test_arrays_must_be_here():
    with pytest.raises(DataError, match=r"gs://b/x\.npz cannot be mapped into memory; copy it here"):
        open_source(ArraysSource(kind="arrays", path="gs://b/x.npz"))


def test_a_scheme_may_come_with_tensorflow_io(tmp_path, monkeypatch):
    """The package is imported when a scheme is unknown, and only then."""
    (tmp_path / "tensorflow_io.py").write_text("raise RuntimeError('made for another TensorFlow')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorflow_io", raising=False)
    assert not files.exists("ram://nothing")
    assert "tensorflow_io" not in sys.modules
    schemes = ["", "ram"]
    monkeypatch.setattr(tf.io.gfile, "get_registered_schemes", lambda: schemes)
    with pytest.raises(OSError, match="no file system for hdfs://"):
        files.exists("hdfs://x")
    (tmp_path / "tensorflow_io.py").write_text(
        "import tensorflow as tf\ntf.io.gfile.get_registered_schemes().append('far')\n"
    )
    monkeypatch.setattr(tf.io.gfile, "stat", lambda path: type("Stat", (), {"is_directory": True}))
    assert files.is_dir("far://x")


def test_local_data_is_opened_without_tensorflow(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jpg").write_bytes(b"x")
    (tmp_path / "m.csv").write_text("path,label\na/1.jpg,a\n")
    code = (
        "import sys; from distxcept.config.schema import FolderSource, ManifestSource\n"
        "from distxcept.data.sources import open_source; from distxcept.data import pack, peek\n"
        "folder, manifest = sys.argv[1:]\n"
        "assert open_source(FolderSource(kind='folder', path=folder)).read(0).encoded == b'x'\n"
        "assert open_source(ManifestSource(kind='manifest', path=manifest)).read(0).encoded == b'x'\n"
        "peek.peek(FolderSource(kind='folder', path='gs://bucket/x'))\n"
        "sys.exit('tensorflow is imported' if 'tensorflow' in sys.modules else 0)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, tmp_path, tmp_path / "m.csv"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_a_pipe_is_refused_and_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="Not a regular file"):
        files.read(str(tmp_path / "pipe"))
