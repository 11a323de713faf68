"""A machine made of scripts: PATH holds exactly the programs that a test names."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]

FAKE_PROGRAMS = {
    "c++": 'echo "c++ (Debian 12.2.0-14) 12.2.0"',
    "make": "exit 0",
    "mpicxx": 'echo "mpicxx: Open MPI 4.1.4 (Language: C++)"',
    "mpirun": 'echo "mpirun (Open MPI) 4.1.4"',
    "mpirun of MPICH": 'echo "HYDRA build details:"; echo "    Version:      4.0.2"',
}


class FakeMachine:
    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.environment = {
            "PATH": str(self.bin),
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        for name in ("dirname", "mktemp", "grep", "rm", "env", "sh", "echo"):
            self.link(name)

    def link(self, name: str) -> None:
        (self.bin / name).symlink_to(shutil.which(name) or f"/bin/{name}")

    def add(self, name: str, script: str | None = None) -> None:
        """A fake under the first word of the name: `mpirun of MPICH` is called mpirun."""
        program = self.bin / name.split()[0]
        program.write_text(f"#!/bin/sh\n{FAKE_PROGRAMS[name] if script is None else script}\n")
        program.chmod(0o755)

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(REPOSITORY / "launch" / script), *arguments]
        return subprocess.run(
            command, env=self.environment, cwd=self.bin, capture_output=True, text=True, timeout=60
        )

    def build_horovod(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("build_horovod.sh", "--python", sys.executable, *arguments)


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the person who runs the tests leaks into what is tested."""
    for name in list(os.environ):
        if name.startswith(("HOROVOD_", "CUDA_", "CXX", "LDFLAGS", "CPLUS_", "MAKEFLAGS")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
