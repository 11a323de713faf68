"""Where CUDA and NCCL are: only for `--gpu`.

Both may come from the system or from PyPI packages; TensorFlow's own GPU install (`tensorflow[and-cuda]`)
brings NCCL as `nvidia-nccl-cu12`, and using that one keeps a single NCCL in the process.
"""

import os
import re
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from launch.horovod_build.errors import MissingError
from launch.horovod_build.programs import output_of

INSTALL_CUDA = (
    "install the CUDA 12 toolkit (TensorFlow's wheels are built with CUDA 12) or load its module, then set "
    "HOROVOD_CUDA_HOME or CUDA_HOME to its folder"
)
INSTALL_NCCL = (
    "install it with `pip install nvidia-nccl-cu12` (part of the `gpu` extra), or set HOROVOD_NCCL_HOME to "
    "a folder with include/nccl.h and lib/libnccl.so.2"
)
LIBRARY_FOLDERS = ("lib", "lib64", f"lib/{sysconfig.get_config_var('MULTIARCH') or 'x86_64-linux-gnu'}")


@dataclass(frozen=True)
class Cuda:
    home: Path
    version: str


@dataclass(frozen=True)
class Nccl:
    include: Path
    library: Path
    version: str
    bundled: bool
    """From the PyPI package beside Horovod in site-packages, so found at run time by a relative path."""


def find_cuda() -> Cuda:
    named = {name: os.environ[name] for name in ("HOROVOD_CUDA_HOME", "CUDA_HOME") if os.environ.get(name)}
    for name, folder in named.items():
        home = Path(folder)
        if not (home / "bin/nvcc").is_file():
            raise MissingError(f"{name}={folder} has no bin/nvcc; {INSTALL_CUDA}")
        return checked_cuda(home)
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise MissingError(f"no CUDA toolkit: `nvcc` is not on PATH; {INSTALL_CUDA}")
    # nvcc on PATH may be a wrapper script or a link: it knows best where its toolkit is.
    top = re.search(r"TOP=(\S+)", output_of([nvcc, "--dryrun", "-x", "cu", os.devnull], stream="stderr"))
    return checked_cuda(Path(top.group(1) if top else os.path.realpath(nvcc) + "/../..").resolve())


def checked_cuda(home: Path) -> Cuda:
    if not (home / "include/cuda_runtime.h").is_file():
        raise MissingError(f"the CUDA toolkit in {home} has no include/cuda_runtime.h; {INSTALL_CUDA}")
    version = re.search(r"release (\d+\.\d+)", output_of([str(home / "bin/nvcc"), "--version"]))
    if version is None:
        raise MissingError(f"{home}/bin/nvcc does not run; {INSTALL_CUDA}")
    return Cuda(home=home, version=version.group(1))


def find_nccl(site_packages: Path | None = None, system: Path = Path("/usr")) -> Nccl:
    """HOROVOD_NCCL_HOME if set, else the PyPI package, else the system's."""
    named = os.environ.get("HOROVOD_NCCL_HOME")
    if named:
        found = nccl_in(Path(named), bundled=False)
        if found is None:
            raise MissingError(
                f"HOROVOD_NCCL_HOME={named} lacks include/nccl.h or lib/libnccl.so.2; {INSTALL_NCCL}"
            )
        return found
    packages = site_packages or Path(sysconfig.get_path("purelib"))
    found = nccl_in(packages / "nvidia/nccl", bundled=True) or nccl_in(system, bundled=False)
    if found is None:
        raise MissingError(f"no NCCL (nccl.h and libnccl.so.2) found; {INSTALL_NCCL}")
    return found


def nccl_in(home: Path, bundled: bool) -> Nccl | None:
    header = home / "include/nccl.h"
    if not header.is_file():
        return None
    numbers = [
        re.search(rf"#define\s+NCCL_{part}\s+(\d+)", header.read_text(errors="replace"))
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    version = ".".join(number.group(1) if number else "?" for number in numbers)
    for folder in LIBRARY_FOLDERS:
        for name in ("libnccl.so.2", "libnccl.so"):
            if (home / folder / name).is_file():
                return Nccl(header.parent, home / folder / name, version, bundled)
    return None
