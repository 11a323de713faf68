"""Compiler logs as they really look, each with the cause that has to be found in it."""

import pytest

from launch.horovod_build.diagnose import cause_of, cause_of_failed_import

# The end of every failed build, whatever the cause was: it must never be taken for the cause.
TAIL = """
  make[2]: *** [horovod/tensorflow/CMakeFiles/tensorflow.dir/build.make:860: xla_mpi_ops.cc.o] Error 1
  make: *** [Makefile:136: all] Error 2
  subprocess.CalledProcessError: Command '['cmake', '--build', '.']' returned non-zero exit status 2.
  error: subprocess-exited-with-error
ERROR: Failed building wheel for horovod
"""


@pytest.mark.parametrize(
    ("log", "says", "remedy"),
    [
        (
            "/b/mpi_context.h:19:10: fatal error: mpi.h: No such file or directory\n   19 | #include <mpi.h>",
            "the header mpi.h is missing",
            "libopenmpi-dev",
        ),
        ("/b/a.h:19:10: fatal error: nccl.h: No such file or directory", "nccl.h", "nvidia-nccl-cu12"),
        (
            "/b/a.h:1:10: fatal error: cuda_runtime.h: No such file or directory",
            "cuda_runtime.h",
            "CUDA_HOME",
        ),
        (
            "/b/x.cc:27:10: fatal error: tensorflow/compiler/xla/shape.h: No such file or directory",
            "tensorflow/compiler/xla/shape.h",
            "tensorflow~=2.21.0",
        ),
        (
            "/t/printer.h:30:10: fatal error: 'highwayhash/arch_specific.h' file not found",
            "highwayhash",
            "2.21",
        ),
        ("c++: fatal error: Killed signal terminated program cc1plus", "ran out of memory", "MAKEFLAGS=-j1"),
        ("cc1plus: fatal error: x.o: No space left on device", "disk is full", "TMPDIR"),
        (
            "CMake Error at x.cmake:165 (message):\n  Could NOT find MPI (missing: MPI_CXX_FOUND)\n",
            "CMake does not find MPI",
            "openmpi-bin",
        ),
        ("  Could NOT find NCCL (missing: NCCL_LIBRARY)", "does not find NCCL", "nvidia-nccl-cu12"),
        (
            "host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later than 13 are not "
            "supported! The nvcc flag '-allow-unsupported-compiler'",
            "nvcc does not accept this host compiler",
            "CXX=g++-13",
        ),
        (
            "nvcc fatal   : Unsupported gpu architecture 'compute_50'",
            "compute_50",
            "HOROVOD_BUILD_CUDA_CC_LIST",
        ),
        (
            "/usr/bin/ld: cannot find -lnccl: No such file or directory",
            "the library nccl",
            "nvidia-nccl-cu12",
        ),
        ("/usr/bin/ld: cannot find -lcudart_static\ncollect2: error:", "cudart_static", "CUDA_HOME"),
        (
            "mpi_ops.cc:(.text+0x1a): undefined reference to `stream_executor::gpu::AsGpuStreamValue(Stream*)'",
            "AsGpuStreamValue",
            "tensorflow~=2.21.0",
        ),
        ("  ModuleNotFoundError: No module named 'setuptools'", "setuptools", "pip install setuptools"),
        (
            "  /b/mpi_ops.cc:58:10: warning: unused\n  /b/mpi_ops.cc:60:1: error: 'GpuStreamHandle' does not name "
            "a type\n  /b/mpi_ops.cc:99:1: error: another",
            "/b/mpi_ops.cc:60:1: error: 'GpuStreamHandle' does not name a type",
            "2.21",
        ),
        (
            "CMake Error at CMakeLists.txt:1 (cmake_minimum_required):\n  CMake 9.0 or higher is required.\n\n",
            "CMake stopped: CMake 9.0 or higher is required.",
            "",
        ),
    ],
)
def test_the_cause_is_found(log, says, remedy) -> None:
    noise = "[ 12%] Building CXX object error.cc.o\n/b/logging.h:119:11: warning: comparison of integer\n"
    cause = cause_of(noise + log + "\n" + TAIL)
    assert says in cause
    assert remedy in cause
    assert "\n" not in cause


def test_an_unknown_cause_is_not_guessed() -> None:
    assert cause_of("one\n\nthe last words\n\n").endswith("the last line of the log is: the last words")
    assert "no output" in cause_of("")


@pytest.mark.parametrize(
    ("stderr", "says"),
    [
        ("ImportError: libmpi.so.40: cannot open shared object file: No such file", "openmpi-bin"),
        ("OSError: libnccl.so.2: cannot open shared object file: No such file", "nvidia-nccl-cu12"),
        ("ImportError: /x/mpi_lib.so: undefined symbol: _ZN10tensorflow4FooE", "_ZN10tensorflow4FooE"),
        ("Traceback\nValueError: odd", "ValueError: odd"),
    ],
)
def test_a_library_that_does_not_load(stderr, says) -> None:
    assert says in cause_of_failed_import(stderr)
