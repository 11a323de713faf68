"""What a new user types first, in a fresh clone with an environment of its own; and what only long tests can run."""

import json
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from documented import commands

from tests.pages import REPOSITORY

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2 * 3600)]


def run(*command: str, folder: Path = REPOSITORY, **environ: str) -> str:
    settings = [f"{name}={value}" for name, value in environ.items()]
    done = subprocess.run(
        ["env", *settings, *command], cwd=folder, capture_output=True, text=True, check=False
    )
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
    records = map(json.loads, (clone / "runs" / "quickstart" / "metrics.jsonl").read_text().splitlines())
    assert max(one["accuracy"] for one in records if one["kind"] == "validation") > 0.85
    activated = run("sh", "-c", ". .venv/bin/activate && distxcept runs", folder=clone)
    assert "quickstart" in activated
    said = run("make", "same", folder=clone)
    worst = re.search(r"largest relative difference ([\d.e+-]+)", said)
    assert worst and float(worst[1]) < 1e-11, said


def test_from_photos_to_predictions_by_the_readme_alone(clone: Path) -> None:
    """A new user in a fresh clone: at most five commands, all of them README's, and no edit."""
    run(sys.executable, "-m", "distxcept.data.flowers", "drawn", "--train", "150", "--validation", "30", "--seed", "7",
        folder=clone, PYTHONPATH=str(REPOSITORY))  # fmt: skip
    (clone / "drawn" / "train").rename(clone / "photos")
    (clone / "new-photos").mkdir()
    kinds = {}
    for number, photo in enumerate(sorted((clone / "drawn" / "validation").rglob("*.jpg"))):
        kinds[f"{number}.jpg"] = photo.parent.name
        photo.rename(clone / "new-photos" / f"{number}.jpg")
    of_readme = [command.text for command in commands() if command.where.startswith("README.md")]
    typed = ["make quickstart", ". .venv/bin/activate"]
    typed += [text for text in of_readme if re.search(r"run\.name=photos|predict runs/photos", text)]
    assert set(typed) <= set(of_readme)
    assert len(typed) == 4
    said = run("sh", "-c", " && ".join(typed), folder=clone)
    print(said[-2000:])
    told = re.findall(r"% (\w+) +new-photos/(\d+\.jpg)", said)
    assert len(told) == len(kinds) == 30
    right = sum(kinds[name] == kind for kind, name in told)
    print(f"{right} of {len(told)} new photos are called what they are")
    assert right >= 20


def test_quantised_exports_of_the_quickstart_answer_as_its_model(tmp_path: Path) -> None:
    """Within a point of top-1, on all of its validation images. The rest of `make quickstart`, in this environment."""
    environ = {"PYTHONPATH": str(REPOSITORY)}
    flowers = ("data/flowers", "--train", "960", "--validation", "200")
    run(sys.executable, "-m", "distxcept.data.flowers", *flowers, folder=tmp_path, **environ)
    distxcept = (sys.executable, "-m", "distxcept.cli.main")
    config = str(REPOSITORY / "configs" / "quickstart.yaml")
    run(*distxcept, "train", "-q", config, folder=tmp_path, **environ)
    for quantize in ("float16", "int8"):
        order = ("export", "runs/quickstart", "--format", "tflite", "--quantize", quantize, "--json")
        found = json.loads(run(*distxcept, *order, folder=tmp_path, **environ))
        print(quantize, found)
        assert found["images"] == 200
        assert found["accuracy_before"] > 0.85
        assert abs(found["accuracy_before"] - found["accuracy_after"]) <= 0.01 + 1e-9


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


WRITTEN = """
run: {updates: 4, log_every: 2, evaluate_every: 2, writers: [wandb, mlflow]}
model: {image_size: 71, width: 0.0625, middle_blocks: 1}
data: {train: {kind: synthetic, samples: 16, classes: 3}, validation: {kind: synthetic, samples: 8, classes: 3}}
batch: {global: 4, virtual: 4, micro: 4}
"""
READ_MLFLOW = """
import json, mlflow
(run,) = mlflow.MlflowClient().search_runs(["0"])
print(json.dumps([run.info.run_name, run.info.status, run.data.metrics, run.data.params]))
"""


def test_the_real_packages_take_what_is_written(tmp_path: Path) -> None:
    """W&B offline and MLflow with its local database, in an environment that sees this one's packages behind its own."""
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", *extras["wandb"], *extras["mlflow"], folder=tmp_path)
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(packages, "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{REPOSITORY}\n")
    (tmp_path / "written.yaml").write_text(WRITTEN)
    for updates in (4, 8):  # the second goes on with the run of the first, there too
        train = ("-m", "distxcept.cli.main", "train", "written.yaml", f"run.updates={updates}")
        run(python, *train, folder=tmp_path, WANDB_MODE="offline")
    folder = tmp_path / "runs" / "written"
    files = list(folder.glob("wandb/offline-run-*/run-*.wandb"))
    assert (
        len(files) == 2 and len({one.name for one in files}) == 1 and all(one.stat().st_size for one in files)
    )
    name, status, metrics, params = json.loads(run(python, "-c", READ_MLFLOW, folder=tmp_path))
    assert (name, status, metrics["train_samples"]) == ("written", "FINISHED", 32.0)
    assert params["batch.global"] == "4"
