"""What a new user types first, in a fresh clone with an environment of its own; and what only long tests can run."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import REPOSITORY

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2 * 3600)]


def run(*command: str, folder: Path = REPOSITORY, **environ: str) -> str:
    settings = [f"{name}={value}" for name, value in environ.items()]
    done = subprocess.run(["env", *settings, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh") / "distxcept"
    run("git", "clone", "--quiet", str(REPOSITORY), str(folder))
    return folder


def test_quickstart_and_the_proof(clone: Path) -> None:
    """`make quickstart`, `. .venv/bin/activate`, `make same`."""
    run("make", "quickstart", folder=clone)
    summary = json.loads((clone / "runs" / "quickstart" / "summary.json").read_text())
    assert summary["best"]["accuracy"] > 0.8
    activated = run("sh", "-c", ". .venv/bin/activate && distxcept runs", folder=clone)
    assert "quickstart" in activated
    said = run("make", "same", folder=clone)
    worst = re.search(r"largest relative difference\D*([\d.e+-]+)", said)
    assert worst and float(worst[1]) < 1e-11, said


def test_every_measurement_runs(tmp_path: Path) -> None:
    """`QUICK=1 benchmarks/everything.sh`"""
    run("benchmarks/everything.sh", str(tmp_path), QUICK="1", PYTHON=sys.executable)
    found = json.loads((tmp_path / "bench.json").read_text())
    assert {"machine", "step", "accumulate", "scale", "startup"} <= set(found)
    assert "failed)" not in (tmp_path / "bench.md").read_text()
    assert {"step.png", "accumulate.png", "scale.png"} <= {one.name for one in tmp_path.glob("*.png")}


@pytest.mark.parametrize(
    ("wanted", "package"),
    [("tensorboard", "tensorboard"), ("distxcept[wandb]", "wandb"), ("distxcept[mlflow]", "mlflow-skinny")],
)
def test_extras_can_be_had(wanted: str, package: str) -> None:
    """`pip install 'distxcept[wandb]'` beside a clone: what is installed is asked for its extra, no index knows it."""
    said = run(sys.executable, "-m", "pip", "install", "--dry-run", wanted)
    assert re.search(rf"(Would install .*|Requirement already satisfied: ){package}\b", said), said[-2000:]
