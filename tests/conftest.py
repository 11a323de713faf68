"""Fixtures for both tiers."""

import shutil
import subprocess
from pathlib import Path

import pytest

FAKE_NVML = Path(__file__).parent / "fakes" / "nvml" / "fake_nvml.c"


@pytest.fixture(scope="session")
def fake_nvml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that, on LD_LIBRARY_PATH, makes nvidia-ml-py talk to our fake driver library."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: apt-get install gcc")
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(FAKE_NVML)], check=True
    )
    return library.parent
