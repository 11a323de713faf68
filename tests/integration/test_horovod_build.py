"""Horovod's published source against the installed TensorFlow, in GPU mode, on a machine without a GPU.

The ordinary test stops after the compiler's front end: it catches any change of TensorFlow's interface in a minute or
two, once for each combination of TensorFlow, compiler, MPI and our headers, as the wheel is built once. The soak test makes
the whole wheel, links and loads it. Neither can say that it runs on a GPU.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from launch.horovod_build.errors import MissingError
from launch.horovod_build.nvidia import find_cuda
from launch.horovod_build.source import fetch_source
from launch.horovod_build.toolchain import find_mpi
from launch.horovod_build.wheel_cache import HOROVOD_VERSION, cache_root, headers_digest

REPOSITORY = Path(__file__).resolve().parents[2]
COMPAT = REPOSITORY / "launch/horovod_compat"

# Horovod's file as it is, then the question whether our header was the one it found: without this,
# a stream.h of TensorFlow's that comes first would be noticed by the linker only.
TRANSLATION_UNITS = {
    "mpi_ops": "DISTXCEPT_HOROVOD_COMPAT_STREAM_H_",
    "xla_mpi_ops": "DISTXCEPT_HOROVOD_COMPAT_XLA_BUILDER_H_",
}


@pytest.fixture(scope="module")
def horovod_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("horovod")
    with tarfile.open(fetch_source()) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.iterdir())


def tensorflow_headers() -> Path:
    """Without importing TensorFlow: the test needs its files only."""
    spec = importlib.util.find_spec("tensorflow")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "include"


def front_end_command(source: Path, unit: Path) -> list[str]:
    headers = tensorflow_headers()
    major, minor, patch = map(int, importlib.metadata.version("tensorflow").split(".")[:3])
    third_party = [source / "third_party/gloo"]
    third_party += sorted(source.glob("third_party/*/include")) + sorted(
        source.glob("third_party/boost/*/include")
    )
    # TensorFlow ships the headers of the CUDA that it was built with: the right ones, and always there.
    system = [headers, headers / "third_party/gpus/cuda/include"]
    command = ["mpicxx", "-std=c++17", "-fsyntax-only", "-w", f"-I{COMPAT}", f"-I{source}"]
    command += [f"-I{folder}" for folder in third_party]
    command += [part for folder in system for part in ("-isystem", str(folder))]
    command += [f"-DTENSORFLOW_VERSION={major * 10**9 + minor * 10**6 + patch * 10**3}"]
    command += [f"-DHAVE_{what}=1" for what in ("GPU", "CUDA", "NCCL", "MPI", "GLOO")]
    return [*command, "-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MPL2_ONLY=1", str(unit)]


def already_compiled(source: Path) -> Path:
    """Where it is noted that these very inputs went through the compiler."""
    compiler = subprocess.run(["mpicxx", "--version"], capture_output=True, text=True, check=True).stdout
    command = [part.replace(str(source), "") for part in front_end_command(source, Path("unit"))]
    tensorflow = importlib.metadata.distribution("tensorflow")
    inputs = [compiler, find_mpi(), *command, headers_digest(COMPAT), tensorflow.read_text("RECORD") or ""]
    digest = hashlib.sha256("\0".join([*inputs, Path(__file__).read_text()]).encode()).hexdigest()
    return cache_root() / "compiled" / f"horovod-{HOROVOD_VERSION}-gpu-front-end-{digest[:16]}"


@pytest.mark.skipif(
    shutil.which("mpicxx") is None, reason="no mpicxx: apt-get install openmpi-bin libopenmpi-dev"
)
def test_both_tensorflow_sources_compile_in_gpu_mode(horovod_source, tmp_path) -> None:
    compiled = already_compiled(horovod_source)
    if compiled.exists():
        print(f"compiled before: {compiled}")
        return
    carried = tensorflow_headers() / "external"
    include_path = f"{carried / 'highwayhash'}:{carried / 'farmhash_archive/src'}"
    running = {}
    for name, guard in TRANSLATION_UNITS.items():
        unit = tmp_path / f"{name}_checked.cc"
        unit.write_text(
            f'#include "horovod/tensorflow/{name}.cc"\n'
            f'#ifndef {guard}\n#error "{name}.cc did not include our header"\n#endif\n'
        )
        running[name] = subprocess.Popen(
            front_end_command(horovod_source, unit),
            env={**os.environ, "CPLUS_INCLUDE_PATH": include_path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    # All outputs first: no compiler may outlive the test when another one failed.
    outputs = {name: compiler.communicate()[0] for name, compiler in running.items()}
    for name, compiler in running.items():
        assert compiler.returncode == 0, f"{name}.cc: {outputs[name][:4000]}"
    compiled.parent.mkdir(parents=True, exist_ok=True)
    compiled.touch()


@pytest.fixture
def throw_away_python(tmp_path: Path) -> Path:
    """A fresh environment that sees this one's packages, so that TensorFlow is not installed twice."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site_packages = tmp_path / "env/lib" / version / "site-packages"
    (site_packages / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return tmp_path / "env/bin/python"


LOAD = """
import pathlib, tensorflow as tf, horovod.tensorflow as hvd
hvd.init()
total = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="x"))(tf.fill([3], hvd.rank() + 1.0))
library = next(pathlib.Path(hvd.__file__).parent.glob("mpi_lib*.so"))
print("RESULT", hvd.size(), total.numpy().tolist(), hvd.nccl_built(), hvd.cuda_built(), library, flush=True)
"""


@pytest.mark.soak
@pytest.mark.mpi
@pytest.mark.timeout(3000)
def test_the_whole_gpu_wheel_builds_links_and_loads(throw_away_python, tmp_path) -> None:
    try:
        find_cuda()
    except MissingError as missing:
        pytest.skip(str(missing))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    pip = [str(throw_away_python), "-m", "pip", "install", "--quiet", "nvidia-nccl-cu12"]
    subprocess.run(pip, check=True, env=environment)
    build = [str(REPOSITORY / "launch/build_horovod.sh"), "--gpu", "--python", str(throw_away_python)]
    first = subprocess.run(build, env=environment, capture_output=True, text=True)
    assert first.returncode == 0, first.stderr
    wheel = Path(first.stdout.strip())
    assert re.fullmatch(
        r"horovod-0\.28\.1\+tf\S+\.gpu\.k\w+\.whl", re.sub(r"-cp\S+(?=\.whl)", "", wheel.name)
    )

    launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
    ranks = subprocess.run(
        [*launch, str(throw_away_python), "-c", LOAD], env=environment, capture_output=True, text=True
    )
    results = re.findall(r"RESULT (\d) (\[.*?\]) (\d+) (\w+) (\S+)", ranks.stdout)
    assert len(results) == 2, ranks.stdout + ranks.stderr
    for size, total, nccl_version, cuda, library in results:
        assert (size, total, cuda) == ("2", "[3.0, 3.0, 3.0]", "True")
        assert int(nccl_version) >= 20000
        assert Path(library).is_relative_to(throw_away_python.parents[1])
    dynamic = subprocess.run(
        ["readelf", "-d", results[0][4]], capture_output=True, text=True, check=True
    ).stdout
    assert "libnccl.so.2" in dynamic
    run_path = re.search(r"R(?:UN)?PATH\)\s+Library r(?:un)?path: \[(.*)\]", dynamic)
    assert run_path is not None
    assert "$ORIGIN/../../nvidia/nccl/lib" in run_path.group(1).split(":")
    assert "tmp" not in run_path.group(1)

    second = subprocess.run(build, env=environment, capture_output=True, text=True)
    assert second.returncode == 0
    assert "is installed" in second.stderr and "building" not in second.stderr
