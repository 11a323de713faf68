"""Which wheel is which, and that two builds of one never run at once."""

import dataclasses
import multiprocessing
from pathlib import Path
from unittest import mock

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from launch.horovod_build import cli, wheel_cache
from launch.horovod_build.nvidia import Cuda, Nccl
from launch.horovod_build.toolchain import Toolchain

CPU = Toolchain(
    tensorflow="2.21.0",
    python_tag="cp311",
    machine="x86_64",
    processor_features=("avx", "fma"),
    compiler_path="/usr/bin/c++",
    compiler="gcc-12.2.0",
    mpi="openmpi-4.1.4",
)
BUNDLED_NCCL = Nccl(Path("/env/nccl/include"), Path("/env/nccl/lib/libnccl.so.2"), "2.27.3", bundled=True)
GPU = dataclasses.replace(CPU, cuda=Cuda(Path("/cuda"), "12.4"), nccl=BUNDLED_NCCL)

pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    folder = tmp_path / "headers"
    folder.mkdir()
    (folder / "a.h").write_text("// a\n")
    return folder


def version_of(toolchain: Toolchain, headers: Path) -> str:
    return wheel_cache.local_version(wheel_cache.key_parts(toolchain, headers))


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (CPU, {"tensorflow": "2.21.1"}),
        (CPU, {"python_tag": "cp312"}),
        (CPU, {"machine": "aarch64"}),
        (CPU, {"processor_features": ("avx",)}),
        (CPU, {"compiler": "gcc-13.1.0"}),
        (CPU, {"mpi": "mpich-4.0.2"}),
        (CPU, {"cuda": GPU.cuda, "nccl": GPU.nccl}),
        (GPU, {"cuda": Cuda(Path("/cuda"), "12.5")}),
        (GPU, {"nccl": dataclasses.replace(BUNDLED_NCCL, version="2.28.0")}),
        (GPU, {"nccl": dataclasses.replace(BUNDLED_NCCL, bundled=False)}),
    ],
)
def test_everything_that_changes_the_wheel_changes_its_version(base, change, headers) -> None:
    assert version_of(dataclasses.replace(base, **change), headers) != version_of(base, headers)


def test_places_alone_do_not_make_another_wheel(headers) -> None:
    elsewhere = dataclasses.replace(
        GPU,
        compiler_path="/opt/c++",
        nccl=dataclasses.replace(BUNDLED_NCCL, library=Path("/other/libnccl.so.2")),
    )
    assert version_of(elsewhere, headers) == version_of(GPU, headers)


def test_header_contents_and_names_count(headers) -> None:
    before = version_of(CPU, headers)
    (headers / "a.h").write_text("// b\n")
    changed = version_of(CPU, headers)
    (headers / "a.h").rename(headers / "b.h")
    assert len({before, changed, version_of(CPU, headers)}) == 3


def test_settings_of_the_user_count(headers, monkeypatch) -> None:
    before = version_of(GPU, headers)
    monkeypatch.setenv("HOROVOD_BUILD_CUDA_CC_LIST", "80,90")
    assert version_of(GPU, headers) != before


@pytest.mark.parametrize("tensorflow", ["2.21.0", "2.22.0rc0", "2.21.0+nv25.02", "2.22.0-dev20260101"])
def test_version_is_in_normal_form_and_satisfies_the_requirement(tensorflow, headers) -> None:
    local = version_of(dataclasses.replace(CPU, tensorflow=tensorflow), headers)
    version = Version(f"0.28.1+{local}")
    assert version.local == local
    assert version in SpecifierSet("==0.28.1")


def test_a_stored_wheel_is_found_and_not_built_again(tmp_path, headers, monkeypatch) -> None:
    parts = wheel_cache.key_parts(CPU, headers)
    folder = wheel_cache.wheel_folder(parts)
    made = tmp_path / "horovod-0.28.1-cp311.whl"
    made.write_bytes(b"wheel")
    monkeypatch.setattr(cli, "build", lambda *_: wheel_cache.store_wheel(made, parts, folder))
    first = cli.find_or_build(CPU, parts)
    monkeypatch.setattr(cli, "build", lambda *_: pytest.fail("built twice"))
    assert cli.find_or_build(CPU, parts) == first
    assert first.read_bytes() == b"wheel"
    assert folder.is_relative_to(tmp_path / "cache")


def test_a_half_written_wheel_is_not_taken(headers) -> None:
    folder = wheel_cache.wheel_folder(wheel_cache.key_parts(CPU, headers))
    folder.mkdir(parents=True)
    (folder / ".horovod-0.28.1-cp311.whl.partial").write_bytes(b"half")
    assert wheel_cache.cached_wheel(folder) is None


def _second_builder(parts: dict[str, str], pipe) -> None:
    say = mock.patch.object(cli, "say", pipe.send)
    build = mock.patch.object(cli, "build", lambda *_: pipe.send("built again"))
    with say, build:
        pipe.send(str(cli.find_or_build(CPU, parts)))


def test_the_second_of_two_builders_waits_and_takes_the_wheel_of_the_first(tmp_path, headers) -> None:
    parts = wheel_cache.key_parts(CPU, headers)
    folder = wheel_cache.wheel_folder(parts)
    made = tmp_path / "horovod-0.28.1-cp311.whl"
    made.write_bytes(b"wheel")
    context = multiprocessing.get_context("spawn")  # a forked child would hold the lock with us
    ours, theirs = context.Pipe()
    with wheel_cache.build_lock(folder, "not said", pytest.fail):
        second = context.Process(target=_second_builder, args=(parts, theirs))
        second.start()
        assert ours.poll(30)
        assert "another build" in ours.recv()
        wheel = wheel_cache.store_wheel(made, parts, folder)
    assert ours.poll(30)
    assert ours.recv() == str(wheel)
    second.join(30)
    assert second.exitcode == 0
