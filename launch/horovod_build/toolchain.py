"""What the build needs from the machine, looked up before anything is compiled.

Finding out takes a fraction of a second (nothing imports TensorFlow here), so the same values name the
cached wheel: see `wheel_cache.py`. Whatever is missing raises `MissingError` with how to get it.
"""

import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from launch.horovod_build.errors import MissingError
from launch.horovod_build.nvidia import Cuda, Nccl, find_cuda, find_nccl
from launch.horovod_build.programs import output_of

TESTED_TENSORFLOW_SERIES = "2.21"

INSTALL_COMPILER = "install it with `apt-get install g++ make` (Debian, Ubuntu) or `dnf install gcc-c++ make`"
INSTALL_MPI = (
    "install it with `apt-get install openmpi-bin libopenmpi-dev` (Debian, Ubuntu), or load your "
    "cluster's module (`module load openmpi`)"
)
# Horovod compiles with these when the processor has them; a wheel built with them fails on one without.
PROCESSOR_FEATURES_USED = ("avx", "f16c", "fma")


@dataclass(frozen=True)
class Toolchain:
    """Everything that decides what the compiled wheel will be."""

    tensorflow: str
    python_tag: str
    machine: str
    processor_features: tuple[str, ...]
    compiler_path: str
    compiler: str
    mpi: str
    cuda: Cuda | None = None
    nccl: Nccl | None = None

    @property
    def device(self) -> str:
        return "cpu" if self.cuda is None else "gpu"


def find_toolchain(gpu: bool) -> Toolchain:
    tensorflow = tensorflow_version()
    compiler_path = find_compiler()
    if shutil.which("make") is None:
        raise MissingError(f"no `make` on PATH; {INSTALL_COMPILER}")
    return Toolchain(
        tensorflow=tensorflow,
        python_tag=f"cp{sys.version_info.major}{sys.version_info.minor}",
        machine=platform.machine(),
        processor_features=processor_features(),
        compiler_path=compiler_path,
        compiler=compiler_version(compiler_path),
        mpi=find_mpi(),
        cuda=find_cuda() if gpu else None,
        nccl=find_nccl() if gpu else None,
    )


def tensorflow_version() -> str:
    for name in ("tensorflow", "tensorflow-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise MissingError(
        f"TensorFlow is not installed for {sys.executable}; install it with "
        f"`{sys.executable} -m pip install tensorflow~={TESTED_TENSORFLOW_SERIES}.0` (or `make install`)"
    )


def find_compiler() -> str:
    """The C++ compiler that CMake would choose too: CXX, then the usual names."""
    wanted = shlex.split(os.environ.get("CXX", ""))[:1]
    for name in wanted or ["c++", "g++", "clang++"]:
        found = shutil.which(name)
        if found:
            return found
    looked_for = f"CXX={wanted[0]} is" if wanted else "c++, g++ and clang++ are"
    raise MissingError(f"no C++ compiler: {looked_for} not on PATH; {INSTALL_COMPILER}")


def compiler_version(path: str) -> str:
    first_line = next(iter(output_of([path, "--version"]).splitlines()), "")
    number = re.search(r"\b(\d+\.\d+(\.\d+)?)\b", first_line.rsplit(")", 1)[-1] or first_line)
    family = "clang" if "clang" in first_line else "gcc"
    return f"{family}-{number.group(1) if number else first_line}"


def find_mpi() -> str:
    """Name and version of the MPI that the compiler wrapper and the launcher belong to."""
    for program in ("mpicxx", "mpirun"):
        if shutil.which(program) is None:
            raise MissingError(f"no MPI: `{program}` is not on PATH; {INSTALL_MPI}")
    compiled_with = mpi_name(output_of(["mpicxx", "--showme:version"]) or output_of(["mpicxx", "-v"]))
    run_with = mpi_name(output_of(["mpirun", "--version"]))
    if compiled_with.split("-")[0] != run_with.split("-")[0]:
        raise MissingError(
            f"two MPIs are mixed: mpicxx is {compiled_with}, mpirun is {run_with}; put one of them first on "
            "PATH (Debian, Ubuntu: `update-alternatives --config mpi` and `--config mpirun`)"
        )
    return run_with


def mpi_name(version_text: str) -> str:
    """`openmpi-4.1.4` and the like, from what the wrappers and launchers print about themselves."""
    for family, pattern in (
        ("openmpi", r"(?:Open MPI|OpenRTE)\)? v?(\d[\w.]*)"),
        ("mpich", r"MPICH version (\d[\w.]*)"),
        ("mpich", r"HYDRA[\s\S]*?Version:\s*(\d[\w.]*)"),
        ("intelmpi", r"Intel\(R\) MPI[\s\S]*?Version (\d[\w.]*)"),
        ("mvapich", r"MVAPICH\S* [vV]ersion (\d[\w.]*)"),
    ):
        found = re.search(pattern, version_text)
        if found:
            return f"{family}-{found.group(1)}"
    return "unknown"


def check_mpi_headers(compile_in: Path) -> None:
    """Debian ships the wrapper and the headers in two packages: try, before the long build does."""
    source = compile_in / "mpi_header.cc"
    source.write_text("#include <mpi.h>\n")
    done = subprocess.run(["mpicxx", "-E", "-o", os.devnull, str(source)], capture_output=True, text=True)
    if done.returncode != 0:
        raise MissingError(f"mpicxx does not find mpi.h, the MPI headers are missing; {INSTALL_MPI}")


def processor_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, ...]:
    try:
        found = re.search(r"^flags\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        return ()
    present = set(found.group(1).split()) if found else set()
    return tuple(feature for feature in PROCESSOR_FEATURES_USED if feature in present)
