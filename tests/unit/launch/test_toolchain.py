"""Reading what programs and the system say about themselves."""

import importlib.metadata
from pathlib import Path

import pytest

from launch.horovod_build import toolchain
from launch.horovod_build.compile import compile_jobs
from launch.horovod_build.errors import MissingError


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("mpicxx: Open MPI 4.1.4 (Language: C++)\n", "openmpi-4.1.4"),
        ("mpirun (Open MPI) 5.0.3rc1\n\nReport bugs to ...", "openmpi-5.0.3rc1"),
        ("mpiexec (OpenRTE) 3.1.3\n", "openmpi-3.1.3"),
        ("mpicxx for MPICH version 4.0.2\n", "mpich-4.0.2"),
        ("HYDRA build details:\n    Version:                                 4.0.2\n", "mpich-4.0.2"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307\n", "intelmpi-2021.9"),
        ("something new 1.0\n", "unknown"),
    ],
)
def test_mpi_name(printed, name) -> None:
    assert toolchain.mpi_name(printed) == name


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("c++ (Debian 12.2.0-14+deb12u1) 12.2.0", "gcc-12.2.0"),
        ("g++ (GCC) 11.4.1 20230605 (Red Hat 11.4.1-2)", "gcc-11.4.1"),
        ("Debian clang version 14.0.6", "clang-14.0.6"),
    ],
)
def test_compiler_version(printed, version, tmp_path) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(f"#!/bin/sh\necho '{printed}'\n")
    compiler.chmod(0o755)
    assert toolchain.compiler_version(str(compiler)) == version


def test_missing_tensorflow_names_the_command(monkeypatch) -> None:
    def not_found(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", not_found)
    with pytest.raises(MissingError, match=r"pip install tensorflow~=2\.21\.0"):
        toolchain.tensorflow_version()


def test_mpi_headers_that_are_missing_are_named(tmp_path, monkeypatch) -> None:
    wrapper = tmp_path / "mpicxx"
    wrapper.write_text("#!/bin/sh\nexit 1\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match=r"mpi\.h.*libopenmpi-dev"):
        toolchain.check_mpi_headers(tmp_path)


def test_processor_features(tmp_path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu fma avx2 avx\nbogomips: 1\n")
    assert toolchain.processor_features(cpuinfo) == ("avx", "fma")
    assert toolchain.processor_features(tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("available_kb", "processors", "jobs"),
    [(64 * 2**20, 8, 8), (4 * 2**20, 8, 2), (100, 8, 1), (64 * 2**20, 1, 1)],
)
def test_compile_jobs_fit_in_memory(available_kb, processors, jobs, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(processors)))
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: 1 kB\nMemAvailable:   {available_kb} kB\n")
    assert compile_jobs(meminfo) == jobs
    assert compile_jobs(Path("/nowhere")) == processors
