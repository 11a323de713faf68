"""`make` without arguments is the list of what there is; a wrong Python is told so at once."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[3]


def make(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", "-C", str(REPOSITORY), *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


def test_plain_make_lists_the_targets() -> None:
    done = make()
    assert done.returncode == 0, done.stderr
    for target in ("quickstart", "install", "test", "soak", "lint", "horovod", "constraints", "clean"):
        assert re.search(rf"^  make {target} +\S", done.stdout, re.MULTILINE), done.stdout


def test_python_of_the_wrong_version(tmp_path) -> None:
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\n[ "$1" = --version ] && { echo Python 3.9.2; exit 0; }\nexit 1\n')
    python.chmod(0o755)
    done = make(f"VENV={tmp_path}/venv", f"PYTHON={python}", "quickstart")
    assert done.returncode != 0
    assert "3.11" in done.stderr and "Python 3.9.2" in done.stderr and "make PYTHON=" in done.stderr
    assert not (tmp_path / "venv").exists()


class Environment:
    """An environment that is installed but for what GPUs need; its Python only writes down what it is asked."""

    def __init__(self, folder: Path, driver: Path) -> None:
        self.folder, self.asked, self.driver = folder, folder / "asked", driver
        (folder / "bin").mkdir(parents=True)
        python = folder / "bin/python"
        python.write_text(f'#!/bin/sh\necho "$@" >>{self.asked}\n')
        python.chmod(0o755)
        for name in (".made", ".core", ".dev", ".mpi4py"):
            (folder / name).touch()

    def make(self, scenario: str, target: str, *arguments: str, **variables: str) -> str:
        """What Python was asked to do, on a machine with this driver."""
        variables |= {"FAKE_NVML_SCENARIO": scenario, "LD_LIBRARY_PATH": str(self.driver)}
        done = make(f"VENV={self.folder}", f"PYTHON={sys.executable}", *arguments, target, **variables)
        assert done.returncode == 0, done.stderr
        return self.asked.read_text() if self.asked.exists() else ""


@pytest.fixture
def environment(tmp_path: Path, fake_nvml_folder: Path) -> Environment:
    return Environment(tmp_path / "venv", fake_nvml_folder)


GPU_EXTRA = "install --constraint constraints.txt --editable .[gpu]"


@pytest.mark.parametrize(
    ("scenario", "arguments", "installed"),
    [
        ("healthy", (), True),
        ("old_driver", (), True),
        ("healthy", ("GPU=no",), False),
        ("no_driver", (), False),
        ("mismatch", (), False),
        ("bare", (), False),
        ("no_driver", ("GPU=yes",), True),
    ],
)
def test_a_machine_with_cards_gets_the_libraries_of_cuda(environment, scenario, arguments, installed) -> None:
    for target in ("cuda", "horovod"):
        environment.asked.unlink(missing_ok=True)
        (environment.folder / ".cuda").unlink(missing_ok=True)
        asked = environment.make(scenario, target, *arguments)
        assert (GPU_EXTRA in asked) == (environment.folder / ".cuda").exists() == installed
    assert "horovod_build" in asked and ("--prefer-gpu" in asked) == installed


def test_the_libraries_of_cuda_are_installed_once(environment) -> None:
    assert GPU_EXTRA in environment.make("healthy", "cuda")
    environment.asked.unlink()
    assert environment.make("healthy", "cuda") == ""


def test_a_toolkit_without_a_driver_changes_nothing(environment, tmp_path) -> None:
    nvcc = tmp_path / "toolkit/nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\nexit 0\n")
    nvcc.chmod(0o755)
    asked = environment.make("no_driver", "horovod", PATH=f"{nvcc.parent}:{os.environ['PATH']}")
    assert GPU_EXTRA not in asked and "--prefer-gpu" not in asked


@pytest.mark.parametrize("target", ["quickstart", "install"])
def test_what_a_newcomer_starts_looks_for_cards(environment, target) -> None:
    variables = {"FAKE_NVML_SCENARIO": "healthy", "LD_LIBRARY_PATH": str(environment.driver)}
    done = make("-n", f"VENV={environment.folder}", f"PYTHON={sys.executable}", target, **variables)
    assert done.returncode == 0 and ".[gpu]" in done.stdout, done.stderr


def test_cards_are_counted_without_a_driver_too(monkeypatch) -> None:
    from launch import count_gpus

    monkeypatch.setattr(count_gpus, "LIBRARY", "libno-such-driver.so.1")
    assert count_gpus.count_gpus() == 0
    monkeypatch.setattr(count_gpus, "LIBRARY", "libc.so.6")  # a library of something else
    assert count_gpus.count_gpus() == 0


def test_a_wrong_choice_is_one_line() -> None:
    done = make("GPU=maybe", "quickstart")
    assert done.returncode == 2
    assert "GPU is maybe; give auto, yes or no" in done.stderr and done.stderr.count("\n") == 1


def test_constraints_are_exact_and_allowed_by_the_package() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pinned = [Requirement(line) for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"==[^*]+", str(one.specifier)) for one in pinned)
    versions = {canonicalize_name(one.name): next(iter(one.specifier)).version for one in pinned}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for text in project["dependencies"] + extras["dev"] + extras["horovod"] + extras["gpu"]:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        assert name in versions, f"{name} has no pin: run `make constraints`"
        assert requirement.specifier.contains(versions[name]), text
