"""The published source of Horovod, through pip, with its checksum verified at every use."""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from launch.horovod_build.errors import MissingError
from launch.horovod_build.wheel_cache import HOROVOD_VERSION, cache_root

SDIST_NAME = f"horovod-{HOROVOD_VERSION}.tar.gz"
SDIST_SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"


def pip_environment() -> dict[str, str]:
    """A constraints file names no hashes, and pip refuses to mix such lines with ours."""
    return {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}


def verified(sdist: Path) -> Path:
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    if digest != SDIST_SHA256:
        raise MissingError(
            f"{sdist} is not the published source of Horovod {HOROVOD_VERSION}: its SHA-256 is {digest}, "
            f"expected {SDIST_SHA256}; delete it and run this again"
        )
    return sdist


def fetch_source() -> Path:
    """The source archive in the cache; downloads it when it is not there yet."""
    kept = cache_root() / "sources" / SDIST_NAME
    if kept.is_file():
        return verified(kept)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".download-") as folder:
        wanted = Path(folder) / "wanted.txt"
        wanted.write_text(f"horovod=={HOROVOD_VERSION} --hash=sha256:{SDIST_SHA256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--no-binary", "horovod", "--no-build-isolation", "--require-hashes"]
        command += ["--dest", folder, "--requirement", str(wanted)]
        done = subprocess.run(command, capture_output=True, text=True, env=pip_environment())
        downloaded = Path(folder) / SDIST_NAME
        if done.returncode != 0 or not downloaded.is_file():
            lines = [line.strip() for line in done.stderr.splitlines() if line.startswith("ERROR")]
            reason = lines[0] if lines else f"pip ended with {done.returncode}"
            raise MissingError(
                f"pip cannot download the source of Horovod {HOROVOD_VERSION} ({reason}); "
                f"without network, put {SDIST_NAME} into {kept.parent} yourself"
            )
        return verified(downloaded).rename(kept)
