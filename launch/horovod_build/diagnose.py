"""From thousands of lines of compiler output to the one thing that is wrong.

The causes stand in the order in which they explain a log best: a compiler that was killed for lack of
memory also leaves a failed CMake behind, but not the other way round.
"""

import re
from collections.abc import Callable

from launch.horovod_build.nvidia import INSTALL_CUDA, INSTALL_NCCL
from launch.horovod_build.toolchain import INSTALL_COMPILER, INSTALL_MPI, TESTED_TENSORFLOW_SERIES

USE_TESTED_TENSORFLOW = (
    f"the compatibility headers are written for TensorFlow {TESTED_TENSORFLOW_SERIES}: "
    f"`pip install tensorflow~={TESTED_TENSORFLOW_SERIES}.0`"
)


def missing_header(found: re.Match[str]) -> str:
    header = found.group(1)
    what = f"the header {header} is missing"
    for pattern, remedy in (
        (r"^mpi\.h", INSTALL_MPI),
        (r"^nccl", INSTALL_NCCL),
        (r"^(cuda|cu[a-z]+|nvtx|device_)", INSTALL_CUDA),
        (r"^(tensorflow|xla|tsl|absl|highwayhash|farmhash|Eigen|ml_dtypes)", USE_TESTED_TENSORFLOW),
        (r"^(c?[a-z_]+|[a-z_]+\.h)$", INSTALL_COMPILER),
    ):
        if re.search(pattern, header):
            return f"{what}; {remedy}"
    return f"{what}; install the development package that has it"


def missing_library(found: re.Match[str]) -> str:
    library = found.group(1)
    remedy = next(
        (
            remedy
            for word, remedy in (("nccl", INSTALL_NCCL), ("cuda", INSTALL_CUDA), ("mpi", INSTALL_MPI))
            if word in library
        ),
        "install the development package that has it",
    )
    return f"the linker does not find the library {library}; {remedy}"


def missing_module(found: re.Match[str]) -> str:
    return f"the Python module {found.group(1)} is missing; `pip install {found.group(1)}`"


def host_compiler_too_new(found: re.Match[str]) -> str:
    return (
        f"nvcc does not accept this host compiler ({' '.join(found.group(0).split())}); choose an older one "
        f"with CXX=g++-{found.group(1)}, or a newer CUDA toolkit"
    )


def unsupported_architecture(found: re.Match[str]) -> str:
    return (
        f"this nvcc does not know the GPU architecture {found.group(1)}; name the ones you need, for example "
        "HOROVOD_BUILD_CUDA_CC_LIST=80,90"
    )


def out_of_memory(found: re.Match[str]) -> str:
    return "the compiler ran out of memory; build one file at a time with MAKEFLAGS=-j1"


def disk_full(found: re.Match[str]) -> str:
    return "the disk is full; set TMPDIR to a folder with 2 GB free (and look at XDG_CACHE_HOME)"


def undefined_symbol(found: re.Match[str]) -> str:
    return f"the linker does not find the symbol {found.group(1)}; {USE_TESTED_TENSORFLOW}"


def first_compiler_error(found: re.Match[str]) -> str:
    return (
        f"{found.group(1).strip()} (first error; if it names TensorFlow's headers: {USE_TESTED_TENSORFLOW})"
    )


def cmake_error(found: re.Match[str]) -> str:
    return f"CMake stopped: {' '.join(found.group(1).split())}"


CAUSES: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"No space left on device", disk_full),
    (r"Killed signal terminated program|virtual memory exhausted|Cannot allocate memory", out_of_memory),
    (r"fatal error: ([^\s:]+): No such file", missing_header),
    (r"fatal error: '([^']+)' file not found", missing_header),
    (r"unsupported GNU version! gcc versions later than (\d+) are not supported", host_compiler_too_new),
    (r"Unsupported gpu architecture '(\S+)'", unsupported_architecture),
    (r"Could NOT find (MPI)\b", lambda found: f"CMake does not find MPI; {INSTALL_MPI}"),
    (r"Could NOT find (NCCL)\b", lambda found: f"CMake does not find NCCL; {INSTALL_NCCL}"),
    (r"(?:Could NOT find CUDAToolkit|Failed to find nvcc)", lambda found: f"no CUDA; {INSTALL_CUDA}"),
    (r"cannot find (?:-l)?:?(\S+?)(?::|$)", missing_library),
    (r"undefined reference to [`'‘]([^'’]+)['’]", undefined_symbol),
    (r"ModuleNotFoundError: No module named '(\w+)", missing_module),
    (r"^\s*(\S+:\d+(?::\d+)?: error: .*)$", first_compiler_error),
    (r"CMake Error[^\n]*:\s*\n+((?:\s+\S[^\n]*\n)+)", cmake_error),
    (r"^\s*((?:nvcc )?(?:fatal\s*|[eE]rror): .*)$", lambda found: found.group(1).strip()),
)


def cause_of(log: str) -> str:
    """One line: the cause, and the remedy where one is known."""
    for pattern, explain in CAUSES:
        found = re.search(pattern, log, re.MULTILINE)
        if found:
            return explain(found)
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "no output at all")
    return f"the cause is not one of the known ones; the last line of the log is: {last}"


def cause_of_failed_import(stderr: str) -> str:
    """Why the finished library does not load."""
    library = re.search(r"(lib\S+\.so[.\d]*): cannot open shared object file", stderr)
    if library:
        return missing_library(library).replace("the linker", "the loader")
    symbol = re.search(r"undefined symbol: (\S+)", stderr)
    if symbol:
        return undefined_symbol(symbol).replace("the linker", "the loader")
    return next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "no message")
