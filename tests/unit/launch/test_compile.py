"""The environment that steers Horovod's build, and what a failed or interrupted build leaves behind."""

import os
import select
import sys
import zipfile
from pathlib import Path

import pytest

from launch.horovod_build import cli, compile
from launch.horovod_build.errors import CompileError, MissingError
from launch.horovod_build.toolchain import Toolchain

CPU = Toolchain("2.21.0", "cp311", "x86_64", (), "/usr/bin/c++", "gcc-12.2.0", "openmpi-4.1.4")

pytestmark = pytest.mark.usefixtures("clean_environment")


def test_settings_left_over_by_the_user_do_not_reach_the_build(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOROVOD_GPU_ALLREDUCE", "MPI")
    monkeypatch.setenv("HOROVOD_WITHOUT_MPI", "1")
    monkeypatch.setenv("HOROVOD_BUILD_ARCH_FLAGS", "-mavx")
    monkeypatch.setenv("CXXFLAGS", "-g0")
    environment = compile.build_environment(CPU, tmp_path, Path("/tf/include"), "tf2.k1", "/usr/bin/cmake")
    horovod = {name for name in environment if name.startswith("HOROVOD_")}
    assert "HOROVOD_GPU_ALLREDUCE" not in horovod
    assert "HOROVOD_WITHOUT_MPI" not in horovod
    assert "HOROVOD_GPU_OPERATIONS" not in horovod
    assert environment["HOROVOD_BUILD_ARCH_FLAGS"] == "-mavx"
    assert environment["CXXFLAGS"] == f"-I{tmp_path}/compat -g0"
    assert environment["CPLUS_INCLUDE_PATH"].startswith("/tf/include/external/highwayhash:")


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        (None, "-j5"),
        ("-j1", "-j1"),
        (" --no-print-directory", "-j5"),  # what `make` hands to its recipes
        (" -j4 --jobserver-auth=3,4 --no-print-directory", "-j4"),
    ],
)
def test_number_of_compile_jobs(given, passed_on, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(compile, "compile_jobs", lambda: 5)
    if given is not None:
        monkeypatch.setenv("MAKEFLAGS", given)
    environment = compile.build_environment(CPU, tmp_path, Path("/tf"), "tf2.k1", "cmake")
    assert environment["MAKEFLAGS"] == passed_on


def test_spaces_in_paths_are_refused_before_the_build(tmp_path) -> None:
    with pytest.raises(MissingError, match="TMPDIR"):
        compile.check_paths(tmp_path / "my folder")


def test_an_interrupt_leaves_no_compiler_behind(tmp_path, monkeypatch) -> None:
    handles = []

    def interrupt(log: Path, seconds: float) -> None:
        if log.read_text().strip():  # the grandchild runs
            handles.append(os.pidfd_open(int(log.read_text())))
            raise KeyboardInterrupt

    monkeypatch.setattr(compile, "show_progress", interrupt)
    grandchild = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    with pytest.raises(KeyboardInterrupt):
        compile.run_logged([sys.executable, "-c", child], dict(os.environ), tmp_path / "logs/build.log")
    ended, _, _ = select.select(handles, [], [], 30)
    os.close(handles[0])
    assert ended == handles


def test_a_failed_build_ends_with_the_cause_and_the_path_of_the_log(tmp_path, monkeypatch) -> None:
    def failing_build(*args, **kwargs) -> Path:
        raise CompileError("the header mpi.h is missing")

    monkeypatch.setattr(cli, "install_build_tools", lambda: None)
    monkeypatch.setattr(cli, "fetch_source", lambda: tmp_path / "source")
    monkeypatch.setattr(cli, "build_wheel", failing_build)
    parts = {"tensorflow": "2.21.0", "device": "cpu"}
    with pytest.raises(CompileError, match=r"mpi\.h is missing \(the whole log: .*/logs/horovod.*\.log\)"):
        cli.find_or_build(CPU, parts)


def test_a_wheel_without_the_library_is_refused(tmp_path) -> None:
    with pytest.raises(CompileError, match="made no wheel"):
        compile.checked_wheel(tmp_path)
    wheel = tmp_path / "horovod-0.28.1-cp311.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("horovod/tensorflow/mpi_ops.py", "")
    with pytest.raises(CompileError, match="no TensorFlow library"):
        compile.checked_wheel(tmp_path)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("horovod/tensorflow/mpi_lib.cpython-311-x86_64-linux-gnu.so", "")
    assert compile.checked_wheel(tmp_path) == wheel
