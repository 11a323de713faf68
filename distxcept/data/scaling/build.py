"""Compiles bilinear.c. Runs when the package is installed, and by hand: `python distxcept/data/scaling/build.py`.

Standard library only, and nothing of the package: the installer runs it before anything else is there. Without a C
compiler nothing is built and scaling takes the slower way with the same result.
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

SOURCE = Path(__file__).with_name("bilinear.c")
FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-shared")
COMPILERS = ("cc", "gcc", "clang")


def library(source: Path = SOURCE) -> Path:
    """Where the kernel of this source for this kind of machine is, or would be."""
    version = zlib.crc32(source.read_bytes() + " ".join(FLAGS).encode())
    return source.with_name(f"bilinear-{version:08x}-{sys.platform}-{platform.machine()}.so")


def build(source: Path = SOURCE) -> Path | None:
    """The compiled kernel, made if need be; None if that is not possible here (the reason goes to stderr)."""
    target = library(source)
    if target.exists():
        return target
    compiler = shlex.split(os.environ.get("CC", "")) or [name for name in COMPILERS if shutil.which(name)][:1]
    if not compiler:
        print(f"distxcept: no C compiler ({', '.join(COMPILERS)}); images are scaled slower", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        try:
            subprocess.run(
                [*compiler, *FLAGS, "-o", str(made), str(source), "-lm"],
                check=True,
                capture_output=True,
                text=True,
                timeout=120,
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = str(getattr(error, "stderr", None) or error).strip().splitlines()
            print(
                f"distxcept: {compiler[0]}: {said[0] if said else error}; images are scaled slower",
                file=sys.stderr,
            )
            return None
        made.replace(target)
    return target


if __name__ == "__main__":
    print(build() or "not built")
