"""One compilation: a throw-away folder, the environment Horovod's build reads, a log, a clock."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from launch.horovod_build.diagnose import cause_of
from launch.horovod_build.errors import CompileError, MissingError
from launch.horovod_build.nvidia import Nccl
from launch.horovod_build.toolchain import Toolchain, check_mpi_headers
from launch.horovod_build.wheel_cache import USER_SETTINGS

# A compiler process on TensorFlow's headers peaks at about 1.3 GB.
BYTES_PER_COMPILER = 3 * 2**29
ASK_TENSORFLOW = (
    "import json, tensorflow as tf; info = tf.sysconfig.get_build_info();"
    "print(json.dumps([tf.sysconfig.get_include(), bool(info.get('is_cuda_build')), info.get('cuda_version')]))"
)


def build_wheel(
    toolchain: Toolchain,
    sdist: Path,
    compat_headers: Path,
    local_version: str,
    log: Path,
    cmake: str,
    say: Callable[[str], None],
    keep: Callable[[Path], Path],
) -> Path:
    """Compiles, checks the result, and hands it to `keep` before the folder is removed."""
    with tempfile.TemporaryDirectory(prefix="distxcept-horovod-") as folder:
        work = Path(folder)
        check_paths(work)
        check_mpi_headers(work)
        tensorflow_include = ask_tensorflow(toolchain, say)
        shutil.copytree(compat_headers, work / "compat")
        (work / "tmp").mkdir()
        environment = build_environment(toolchain, work, tensorflow_include, local_version, cmake)
        # pip's own wheel cache must stay out: it knows nothing of CPU and GPU builds of one source.
        command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-cache-dir", "--no-deps"]
        command += ["--no-build-isolation", "--use-pep517", "--disable-pip-version-check"]
        command += ["--wheel-dir", str(work / "wheel"), str(sdist)]
        returncode = run_logged(command, environment, log)
        if returncode != 0:
            raise CompileError(cause_of(log.read_text(errors="replace")))
        return keep(checked_wheel(work / "wheel"))


def check_paths(work: Path) -> None:
    """Horovod's CMake files split paths at spaces."""
    for what, path in (("the folder for temporary files", work), ("the Python environment", sys.prefix)):
        if re.search(r"\s", str(path)):
            raise MissingError(
                f"{what} has a space in its name ({path}), and Horovod cannot be built with that; "
                "choose another (TMPDIR for temporary files)"
            )


def ask_tensorflow(toolchain: Toolchain, say: Callable[[str], None]) -> Path:
    """The folder of TensorFlow's headers. Importing it here finds a broken install before the build does."""
    done = subprocess.run(
        [sys.executable, "-c", ASK_TENSORFLOW],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if done.returncode != 0:
        reason = next(iter(reversed(done.stderr.strip().splitlines())), "no message")
        raise MissingError(f"TensorFlow {toolchain.tensorflow} is installed but cannot be imported: {reason}")
    include, cuda_build, cuda_version = json.loads(done.stdout.splitlines()[-1])
    if toolchain.cuda:
        if not cuda_build:
            raise MissingError(
                "this TensorFlow was built without CUDA, so --gpu makes no sense with it; "
                "install `tensorflow[and-cuda]`"
            )
        if cuda_version and cuda_version.split(".")[0] != toolchain.cuda.version.split(".")[0]:
            say(
                f"warning: TensorFlow was built with CUDA {cuda_version}, this toolkit is CUDA "
                f"{toolchain.cuda.version}; the driver must serve both. Prefer a CUDA "
                f"{cuda_version.split('.')[0]} toolkit (HOROVOD_CUDA_HOME)"
            )
    return Path(include)


def build_environment(
    toolchain: Toolchain, work: Path, tensorflow_include: Path, local_version: str, cmake: str
) -> dict[str, str]:
    """Horovod's build is steered by variables alone: leftovers of the user's could contradict ours."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HOROVOD_") or name in USER_SETTINGS
    }
    carried = tensorflow_include / "external"  # TensorFlow ships these two, but beside its include path
    system_paths = [carried / "highwayhash", carried / "farmhash_archive/src"]
    environment |= {
        "HOROVOD_WITH_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_PYTORCH": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_CPU_OPERATIONS": "MPI",
        "HOROVOD_LOCAL_VERSION": local_version,
        "HOROVOD_CMAKE": cmake,
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # the gloo inside Horovod asks for less than CMake 4 grants
        "CXX": toolchain.compiler_path,
        # -I, not CPLUS_INCLUDE_PATH: our stream.h has to come before TensorFlow's of the same name.
        "CXXFLAGS": f"-I{work / 'compat'} {os.environ.get('CXXFLAGS', '')}".strip(),
        "CPLUS_INCLUDE_PATH": joined_paths([*map(str, system_paths), os.environ.get("CPLUS_INCLUDE_PATH")]),
        "PATH": joined_paths([str(Path(sys.executable).parent), os.environ.get("PATH")]),
        "TMPDIR": str(work / "tmp"),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "LC_ALL": "C.UTF-8",  # the log is searched for English messages
    }
    # Under `make` this variable holds the flags of that make, and any value at all makes Horovod's build
    # leave the number of jobs to it: without -j that would be one.
    wished = re.search(r"(?:^|\s)-j\s*(\d+)", os.environ.get("MAKEFLAGS", ""))
    environment["MAKEFLAGS"] = f"-j{wished.group(1) if wished else compile_jobs()}"
    if toolchain.cuda and toolchain.nccl:
        environment |= gpu_environment(toolchain.cuda.home, toolchain.nccl, work)
    return environment


def gpu_environment(cuda_home: Path, nccl: Nccl, work: Path) -> dict[str, str]:
    """NCCL is offered as a linker script, not as itself, for two reasons.

    The PyPI package has `libnccl.so.2` but no `libnccl.so`, which the search wants. And of a shared
    library CMake would write the folder into the result: for a link in our temporary folder that would be
    a place where later anyone could put a library. So the run-time path is given here, by name.
    """
    offered = work / "nccl"
    offered.mkdir()
    (offered / "libnccl.a").write_text(f'INPUT("{nccl.library}")\n')
    run_path = "$ORIGIN/../../nvidia/nccl/lib" if nccl.bundled else str(nccl.library.parent)
    return {
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_CUDA_HOME": str(cuda_home),
        "HOROVOD_NCCL_INCLUDE": str(nccl.include),
        "HOROVOD_NCCL_LIB": str(offered),
        "HOROVOD_NCCL_LINK": "SHARED",
        "LDFLAGS": f"-Wl,-rpath,'{run_path}' {os.environ.get('LDFLAGS', '')}".strip(),
    }


def joined_paths(paths: list[str | None]) -> str:
    return os.pathsep.join(path for path in paths if path)


def compile_jobs(meminfo: Path = Path("/proc/meminfo")) -> int:
    """As many compilers as processors, but no more than memory holds."""
    processors = len(os.sched_getaffinity(0))
    try:
        available = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
    except OSError:
        return processors
    if available is None:
        return processors
    return max(1, min(processors, int(available.group(1)) * 1024 // BYTES_PER_COMPILER))


def run_logged(command: list[str], environment: dict[str, str], log: Path) -> int:
    """Runs in a process group of its own, so that an interrupt leaves no compiler behind."""
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            while True:
                try:
                    return process.wait(timeout=1)
                except subprocess.TimeoutExpired:
                    show_progress(log, time.monotonic() - started)
        finally:
            if sys.stderr.isatty():
                print("\r\x1b[K", end="", file=sys.stderr)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def show_progress(log: Path, seconds: float) -> None:
    if not sys.stderr.isatty():
        return
    with open(log, "rb") as output:
        output.seek(max(0, output.seek(0, os.SEEK_END) - 65536))
        percent = re.findall(rb"\[ *(\d+)%\]", output.read())
    done = f"{percent[-1].decode()} %" if percent else "preparing"
    elapsed = f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
    print(f"\r\x1b[K  building Horovod: {elapsed}, {done}", end="", file=sys.stderr, flush=True)


def checked_wheel(folder: Path) -> Path:
    """Horovod's build can end well and still have left the library out."""
    wheel = next(iter(folder.glob("horovod-*.whl")), None)
    if wheel is None:
        raise CompileError("the build ended without an error but made no wheel")
    with zipfile.ZipFile(wheel) as archive:
        if not any(re.match(r"horovod/tensorflow/mpi_lib.*\.so$", name) for name in archive.namelist()):
            raise CompileError("the wheel has no TensorFlow library in it")
    return wheel
