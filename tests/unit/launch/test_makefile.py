"""`make` without arguments is the list of what there is; a wrong Python is told so at once."""

import re
import subprocess
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[3]


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", "-C", str(REPOSITORY), *arguments], capture_output=True, text=True
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


def test_constraints_are_exact_and_allowed_by_the_package() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pinned = [Requirement(line) for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"==[^*]+", str(one.specifier)) for one in pinned)
    versions = {canonicalize_name(one.name): next(iter(one.specifier)).version for one in pinned}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for text in project["dependencies"] + extras["dev"] + extras["horovod"]:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        assert name in versions, f"{name} has no pin: run `make constraints`"
        assert requirement.specifier.contains(versions[name]), text
