"""Fixtures for both tiers."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

# `make test` draws the same cases every time, so that a red run is never chance; `make soak` draws new ones.
settings.register_profile("seeded", derandomize=True, deadline=None)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile("seeded")

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
