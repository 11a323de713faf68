"""Fixtures for both tiers."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

# `make test` draws the same cases every time, so that a red run is never chance; `make soak` draws new ones, and more.
settings.register_profile("seeded", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("fresh", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("seeded")

# Started in the background or by nohup, these are ignored, here and in every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

FAKES = Path(__file__).parent / "fakes"


@pytest.fixture(scope="session")
def fake_nvml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that, on LD_LIBRARY_PATH, makes nvidia-ml-py talk to our fake driver library."""
    return _build(FAKES / "nvml" / "fake_nvml.c", tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1")


@pytest.fixture(scope="session")
def fake_cuda_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that, on LD_LIBRARY_PATH, makes us talk to our fake CUDA library."""
    return _build(FAKES / "cuda" / "fake_cuda.c", tmp_path_factory.mktemp("cuda") / "libcuda.so.1")


def _build(source: Path, library: Path) -> Path:
    """The folder of the built library."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: apt-get install gcc")
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return library.parent
