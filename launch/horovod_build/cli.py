"""The command: look, build once, keep, install. Messages go to stderr, the wheel's path to stdout."""

import argparse
import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from distxcept.errors import DistxceptError
from launch.horovod_build.compile import build_wheel
from launch.horovod_build.diagnose import cause_of_failed_import
from launch.horovod_build.errors import CompileError, MissingError
from launch.horovod_build.nvidia import find_cuda, find_nccl
from launch.horovod_build.programs import output_of
from launch.horovod_build.source import fetch_source
from launch.horovod_build.toolchain import TESTED_TENSORFLOW_SERIES, Toolchain, find_toolchain
from launch.horovod_build.wheel_cache import (
    HOROVOD_VERSION,
    build_lock,
    cache_root,
    cached_wheel,
    key_parts,
    local_version,
    store_wheel,
    wheel_folder,
)

COMPAT_HEADERS = Path(__file__).resolve().parents[1] / "horovod_compat"
# What Horovod's setup.py imports while it builds; by module name, with the package that has it.
PYTHON_BUILD_TOOLS = {"setuptools": "setuptools", "wheel": "wheel", "packaging": "packaging"}
OLDEST_CMAKE = (3, 13)


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    signal.signal(signal.SIGTERM, stop_on_signal)
    try:
        return run(args)
    except DistxceptError as error:
        say(f"error: {' '.join(str(error).split())}")
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted; nothing was installed")
        return 130


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="build_horovod.sh",
        description=f"Build Horovod {HOROVOD_VERSION} for the installed TensorFlow, once, and install it.",
        epilog="Needs a C++ compiler, make and MPI; with --gpu also the CUDA toolkit and NCCL. The wheel is "
        "kept in the cache (XDG_CACHE_HOME), so a second call is instant.",
    )
    device = parser.add_mutually_exclusive_group()
    device.add_argument("--gpu", action="store_true", help="reduce on GPUs with NCCL (default: CPU, MPI)")
    device.add_argument(
        "--prefer-gpu",
        action="store_true",
        help="--gpu if the CUDA toolkit and NCCL are found, else for the CPU",
    )
    parser.add_argument("--python", metavar="PATH", help="build for and install into this Python")
    parser.add_argument("--output", metavar="DIR", type=Path, help="also copy the wheel to this folder")
    parser.add_argument("--no-install", action="store_true", help="only build")
    return parser.parse_args(argv)


def stop_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def say(message: str) -> None:
    print(f"build_horovod: {message}", file=sys.stderr, flush=True)


def run(args: argparse.Namespace) -> int:
    toolchain = find_toolchain(args.gpu or (args.prefer_gpu and can_build_for_gpu()))
    parts = key_parts(toolchain, COMPAT_HEADERS)
    wheel = find_or_build(toolchain, parts)
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        wheel = Path(shutil.copy2(wheel, args.output))
    if not args.no_install:
        install(wheel, f"{HOROVOD_VERSION}+{local_version(parts)}")
    print(wheel)
    return 0


def can_build_for_gpu() -> bool:
    try:
        find_cuda()
        find_nccl()
    except MissingError as missing:
        say(f"building Horovod for the CPU only: {missing}; then run this again")
        return False
    return True


def find_or_build(toolchain: Toolchain, parts: dict[str, str]) -> Path:
    folder = wheel_folder(parts)
    name = f"Horovod {HOROVOD_VERSION} for TensorFlow {toolchain.tensorflow} ({toolchain.device})"
    wheel = cached_wheel(folder)
    if wheel:
        return wheel
    if not toolchain.tensorflow.startswith(TESTED_TENSORFLOW_SERIES + "."):
        say(f"warning: tried with TensorFlow {TESTED_TENSORFLOW_SERIES} only, this is {toolchain.tensorflow}")
    with build_lock(folder, f"another build of {name} is running; waiting for it", say):
        wheel = cached_wheel(folder)
        return wheel or build(toolchain, parts, folder, name)


def build(toolchain: Toolchain, parts: dict[str, str], folder: Path, name: str) -> Path:
    install_build_tools()
    sdist = fetch_source()
    log = cache_root() / "logs" / f"{folder.name}.log"
    say(f"building {name} with {toolchain.compiler} and {toolchain.mpi}; takes some minutes, log: {log}")
    started = time.monotonic()
    try:
        wheel = build_wheel(
            toolchain,
            sdist,
            COMPAT_HEADERS,
            local_version(parts),
            log,
            find_cmake() or "cmake",
            say=say,
            keep=lambda made: store_wheel(made, parts, folder),
        )
    except CompileError as error:
        raise CompileError(f"{error} (the whole log: {log})") from error
    say(f"built in {time.monotonic() - started:.0f} s: {wheel}")
    return wheel


def install_build_tools() -> None:
    """The build runs in this environment (it has to see this TensorFlow), so its tools must be here."""
    if importlib.util.find_spec("pip") is None:
        raise MissingError(f"{sys.executable} has no pip; `{sys.executable} -m ensurepip` installs it")
    wanted = [
        package for module, package in PYTHON_BUILD_TOOLS.items() if importlib.util.find_spec(module) is None
    ]
    if find_cmake() is None:
        wanted.append("cmake")
    if wanted:
        say(f"installing build tools: {', '.join(wanted)}")
        pip_install(wanted)


def find_cmake() -> str | None:
    for candidate in (Path(sys.executable).parent / "cmake", shutil.which("cmake")):
        if candidate is None or not Path(candidate).is_file():
            continue
        version = re.search(r"version (\d+)\.(\d+)", output_of([str(candidate), "--version"]))
        if version and (int(version.group(1)), int(version.group(2))) >= OLDEST_CMAKE:
            return str(candidate)
    return None


def install(wheel: Path, version: str) -> None:
    try:
        installed = importlib.metadata.version("horovod")
    except importlib.metadata.PackageNotFoundError:
        installed = None
    if installed == version:
        say(f"Horovod {version} is installed")
        return
    pip_install([str(wheel)])
    load = "import horovod.tensorflow as hvd; hvd.mpi_built()"
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, env=quiet)
    if done.returncode != 0:
        raise MissingError(f"Horovod is installed but does not load: {cause_of_failed_import(done.stderr)}")
    say(f"installed Horovod {version}")


def pip_install(what: list[str]) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith(("ERROR", "error"))]
        reason = errors[-1] if errors else f"pip ended with {done.returncode}"
        raise MissingError(f"`{' '.join(command)}` failed: {reason}")
