"""Finished wheels, one folder for each combination of things that decides what the compiler makes."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from launch.horovod_build.toolchain import Toolchain

HOROVOD_VERSION = "0.28.1"
# Settings of Horovod's own build that users may give; they change the wheel, so they are part of the key.
USER_SETTINGS = ("HOROVOD_BUILD_ARCH_FLAGS", "HOROVOD_BUILD_CUDA_CC_LIST")


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "distxcept"


def headers_digest(compat_headers: Path) -> str:
    """Over names and contents, so that a header that moves makes another wheel too."""
    digest = hashlib.sha256()
    for header in sorted(path for path in compat_headers.rglob("*.h")):
        digest.update(header.relative_to(compat_headers).as_posix().encode() + b"\0")
        digest.update(header.read_bytes() + b"\0")
    return digest.hexdigest()


def key_parts(toolchain: Toolchain, compat_headers: Path) -> dict[str, str]:
    parts = {
        "horovod": HOROVOD_VERSION,
        "tensorflow": toolchain.tensorflow,
        "python": toolchain.python_tag,
        "machine": toolchain.machine,
        "processor": " ".join(toolchain.processor_features),
        "compiler": toolchain.compiler,
        "mpi": toolchain.mpi,
        "device": toolchain.device,
        "headers": headers_digest(compat_headers),
    }
    if toolchain.cuda and toolchain.nccl:
        parts["cuda"] = toolchain.cuda.version
        parts["nccl"] = f"{toolchain.nccl.version} {'bundled' if toolchain.nccl.bundled else 'system'}"
        if not toolchain.nccl.bundled:
            parts["nccl_library"] = str(toolchain.nccl.library)  # its folder is written into the wheel
    for name in USER_SETTINGS:
        if os.environ.get(name):
            parts[name.lower()] = os.environ[name]
    return parts


def local_version(parts: dict[str, str]) -> str:
    """The part after `+` in the wheel's version: says what it was built for, and carries the key.

    In the form that packaging tools keep as it is: they read an all-digit part as a number, hence the
    letter before the digest and no leading zeros.
    """
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
    tensorflow = re.sub(r"[^a-z0-9]+", ".", parts["tensorflow"].lower()).strip(".")
    tensorflow = re.sub(r"(?<=\.)0+(?=\d+(\.|$))", "", tensorflow)
    return f"tf{tensorflow}.{parts['device']}.k{digest}"


def wheel_folder(parts: dict[str, str]) -> Path:
    return cache_root() / "wheels" / f"horovod-{HOROVOD_VERSION}-{local_version(parts)}"


def cached_wheel(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob("horovod-*.whl"))), None)


def store_wheel(wheel: Path, parts: dict[str, str], folder: Path) -> Path:
    """The rename comes last and at once: whoever sees a wheel in the folder sees a whole one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "built-for.json").write_text(json.dumps(parts, indent=2, sort_keys=True) + "\n")
    partial = folder / f".{wheel.name}.partial"
    partial.write_bytes(wheel.read_bytes())
    return partial.rename(folder / wheel.name)


@contextlib.contextmanager
def build_lock(folder: Path, on_wait: str, say) -> Iterator[None]:
    """One build of a key at a time; the system drops the lock when its holder dies."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(folder.name + ".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(on_wait)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
