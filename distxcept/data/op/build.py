"""Compiles images.cc for the installed TensorFlow: by hand, `python -m distxcept.data.op.build`, or at first use.

Not when the package is installed: TensorFlow, whose headers and version it needs, is usually not there yet. The library
goes into this folder, or into the user's cache folder where this one is read-only. Without a C++ compiler nothing is
built, and images are read slower with the same result.
"""

import fcntl
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import tensorflow as tf

FOLDER = Path(__file__).parent
COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fPIC", "-shared")
_SECONDS = 900
"""A compilation takes 5 to 30 seconds."""


class CannotBuildError(Exception):
    """Why there is no compiled operation, in one line."""


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distxcept"


def flags() -> list[str]:
    """Without -I or -L: those are the same wherever TensorFlow is."""
    given = [flag for flag in tf.sysconfig.get_compile_flags() if flag.startswith("-D")]
    return [*_FLAGS, *given]


def library_name(folder: Path = FOLDER) -> str:
    """Of the library made from the sources in this folder for this TensorFlow and machine."""
    version = zlib.crc32(" ".join(flags()).encode())
    for part in sorted([*folder.glob("*.cc"), *folder.glob("*.h")]):
        version = zlib.crc32(part.read_bytes(), version)
    return f"images-tf{tf.__version__}-{version:08x}-{sys.platform}-{platform.machine()}.so"


def find(folder: Path = FOLDER) -> Path | None:
    """The library, if it has been built."""
    with suppress(RuntimeError):  # no home folder
        for place in (folder, cache_folder()):
            if (place / library_name(folder)).is_file():
                return place / library_name(folder)
    return None


def build(folder: Path = FOLDER) -> Path:
    """The library, compiled if need be; raises `CannotBuildError`. One process compiles, the others wait for it."""
    found = find(folder)
    if found is not None:
        return found
    compiler = (
        shlex.split(os.environ.get("CXX", "")) or [name for name in COMPILERS if shutil.which(name)][:1]
    )
    if not compiler or shutil.which(compiler[0]) is None:
        raise CannotBuildError(f"no C++ compiler ({compiler[0] if compiler else ', '.join(COMPILERS)})")
    target = _writable(folder) / library_name(folder)
    begun = time.time()
    note = target.with_name(f".{target.name}.lock")
    try:
        with _alone(note):
            found = find(folder)
            if found is not None:
                return found
            # Written by a process for which this one has waited; trying again would fail again.
            if note.exists() and note.stat().st_mtime >= begun and note.read_text():
                raise CannotBuildError(note.read_text())
            try:
                _compile(compiler, folder, target)
            except CannotBuildError as error:
                note.write_text(str(error))
                raise
            note.unlink(missing_ok=True)
            _remove_older(folder, target)
    except OSError as error:
        raise CannotBuildError(f"{target.parent}: {error.strerror or error}") from None
    return target


def _writable(folder: Path) -> Path:
    if os.access(folder, os.W_OK):
        return folder
    try:
        cache = cache_folder()
        cache.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        raise CannotBuildError(f"{folder} is read-only, and there is no cache folder: {error}") from None
    return cache


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time, where the file system has locks. Without them each compiles for itself."""
    with path.open("a") as file:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(compiler: list[str], folder: Path, target: Path) -> None:
    print("distxcept: compiling the image operation (once) …", file=sys.stderr, flush=True)
    include = Path(tf.sysconfig.get_include())
    # -isystem: warnings about TensorFlow's headers are of no use. Without its libjpeg_turbo the system's jpeglib.h
    # would be taken, which may have another layout.
    includes = ["-isystem", str(include / "external" / "libjpeg_turbo"), "-isystem", str(include)]
    sources = [str(path) for path in sorted(folder.glob("*.cc"))]
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as scratch:
        made = Path(scratch) / target.name
        command = [
            *(*compiler, *flags(), *includes, "-o", str(made), *sources),
            *tf.sysconfig.get_link_flags(),
        ]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS)
            with made.open("rb") as file:
                os.fsync(file.fileno())
        except (OSError, subprocess.SubprocessError) as error:
            said = str(getattr(error, "stderr", None) or error).strip().splitlines() or [str(error)]
            told = next((line for line in said if "error" in line), said[0])
            raise CannotBuildError(f"{compiler[0]}: {told}") from None
        # Beside it first, then renamed: nobody ever loads half a file.
        made.replace(target)


def _remove_older(folder: Path, made: Path) -> None:
    """Those of sources that this folder no longer has. A process that has loaded one keeps it."""
    for other in folder.glob(made.name.replace(made.name.split("-")[2], "*")):
        if made.parent == folder and other != made:
            other.unlink(missing_ok=True)


def main() -> int:
    try:
        print(build())
    except CannotBuildError as error:
        print(f"distxcept: {error}; images are read slower", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
