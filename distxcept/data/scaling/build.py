"""Compiles the kernel of this folder: when the package is installed, or by hand, `python distxcept/data/scaling/build.py`.

Standard library only, and nothing of the package: the installer runs it before anything else is there. Without a C++
compiler nothing is built, and images are decoded and scaled the slower way with the same result.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

FOLDER = Path(__file__).parent
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fPIC", "-shared")
COMPILERS = ("c++", "g++", "clang++")


def library(folder: Path = FOLDER) -> Path:
    """Where the kernel of these sources for this kind of machine is, or would be."""
    version = zlib.crc32(" ".join(FLAGS).encode())
    for part in sorted([*folder.glob("*.cc"), *folder.glob("*.h")]):
        version = zlib.crc32(part.read_bytes(), version)
    return folder / f"kernel-{version:08x}-{sys.platform}-{platform.machine()}.so"


def build(folder: Path = FOLDER) -> Path | None:
    """The compiled kernel, made if need be; None if that is not possible here (the reason goes to stderr)."""
    target = library(folder)
    if target.exists():
        return target
    compiler = (
        shlex.split(os.environ.get("CXX", "")) or [name for name in COMPILERS if shutil.which(name)][:1]
    )
    if not compiler:
        print(f"distxcept: no C++ compiler ({', '.join(COMPILERS)}); images are read slower", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        try:
            subprocess.run(
                [*compiler, *FLAGS, "-o", str(made), *map(str, sorted(folder.glob("*.cc"))), "-lm"],
                check=True,
                capture_output=True,
                text=True,
                timeout=120,
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = str(getattr(error, "stderr", None) or error).strip().splitlines()
            print(
                f"distxcept: {compiler[0]}: {said[0] if said else error}; images are read slower",
                file=sys.stderr,
            )
            return None
        made.replace(target)
    return target


if __name__ == "__main__":
    print(build() or "not built")
