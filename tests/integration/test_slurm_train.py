"""`distxcept submit` with a real training on a real two-node SLURM."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from documented import commands
from launched_training import CONFIG, PATIENCE_SECONDS, LaunchedTraining, difference
from launchers import RANK_ENVIRON, skip_without, skip_without_slurm
from safetensors.numpy import load_file
from slurm_cluster import SlurmCluster
from test_sbatch import preempt, requeue, warn

pytestmark = [pytest.mark.slurm, pytest.mark.mpi]

SECRET = "marker-51be-secret"


def submit(slurm: SlurmCluster, folder: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    skip_without("horovod", "mpi4py", "mpirun")
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    command = [
        sys.executable,
        "-m",
        "distxcept.cli.main",
        "submit",
        "config.yaml",
        "--time=30",
        *options,
    ]
    return slurm.run(
        [*command, f"run.dir={folder}", f"run.name={name}"],
        timeout_seconds=600,
        extra_environ={**RANK_ENVIRON, "MY_TOKEN": SECRET},
        cwd=folder,
    )


def test_two_nodes(slurm: SlurmCluster, tmp_path: Path) -> None:
    done = submit(slurm, tmp_path, "two", "--nodes=2", "--follow")
    assert done.returncode == 0, done.stderr
    number = int(done.stdout)
    assert f"submitted job {number}" in done.stderr
    assert "engine horovod" in done.stderr, "--follow shows what the job writes"
    assert "COMPLETED" in done.stderr
    assert "#SBATCH --cpus-per-task=2\n" in (tmp_path / "two" / "job.sbatch").read_text(), "both of the node"
    lines = (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == list(range(1, CONFIG["run"]["updates"] + 1))
    written = [path for path in (tmp_path / "two").rglob("*") if path.is_file()]
    assert {path.name for path in written} >= {
        "job.sbatch",
        f"slurm-{number}.out",
        "rank-0.log",
        "rank-1.log",
    }
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []


@pytest.fixture(scope="module")
def slurm_with_cards() -> Iterator[SlurmCluster]:
    skip_without("horovod", "mpi4py", "mpirun")
    skip_without_slurm()
    with SlurmCluster(nodes=2, cpus_per_node=4, gpus_per_node=4) as cluster:
        yield cluster


def test_the_documented_jobs(slurm_with_cards: SlurmCluster, tmp_path: Path) -> None:
    """As they are written, eight ranks and all. SLURM grants the GPUs that they ask for; of these only the count is real."""
    slurm = slurm_with_cards
    documented = {c.text for c in commands() if c.words[:2] == ["distxcept", "submit"]}
    whole, sweep = sorted(
        (text for text in documented if "--dry-run" not in text), key=lambda t: "--array" in t
    )
    config = {
        **CONFIG,
        "run": {**CONFIG["run"], "updates": 2},
        "batch": {"global": 32, "virtual": 4},
    }
    (tmp_path / "cfg.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "sweep.txt").write_text("optimizer.learning_rate=0.1\noptimizer.learning_rate=0.03\n")
    for text in (whole, sweep):
        command = [sys.executable, "-m", "distxcept.cli.main", *shlex.split(text)[1:]]
        done = slurm.run(command, timeout_seconds=60, extra_environ=RANK_ENVIRON, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        state = slurm.wait_for_job(
            int(done.stdout), "COMPLETED", "FAILED", "CANCELLED", timeout_seconds=PATIENCE_SECONDS
        )
        said = Path(done.stderr.split("tail -F ")[1].strip()).read_text()
        assert state == "COMPLETED", said
        granted = re.search(r"--gpus-per-node (\d)", text)[1]
        assert f"SLURM has given this job {granted} GPU" in said
    assert (
        "batch    global 32 = 8 replicas" in (tmp_path / "runs" / "cfg" / "logs" / "rank-0.log").read_text()
    )
    for name, rate in (("cfg", CONFIG["optimizer"]["learning_rate"]), ("cfg-1", 0.1), ("cfg-2", 0.03)):
        lines = (tmp_path / "runs" / name / "metrics.jsonl").read_text().splitlines()
        seen = [(record["update"], record["learning_rate"]) for record in map(json.loads, lines)]
        assert seen == [(1, rate), (2, rate)], name


def test_refused_before_the_queue_does(slurm: SlurmCluster, tmp_path: Path) -> None:
    for options, words in (
        (["--gpus-per-node=4"], "no node of any partition has more than 0 GPUs"),
        (["--nodes=5"], "has only 2 nodes"),
        (["--partition=gpu"], "no partition gpu; there are high, low"),
        (["--cpus-per-rank=64"], "no node of any partition has more than 2"),
    ):
        done = submit(slurm, tmp_path, "refused", *options)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
    assert slurm.run(["squeue", "--noheader"]).stdout == ""


@pytest.mark.soak
@pytest.mark.parametrize("ranks_per_node", [1, 2])
def test_weights_are_those_of_a_single_device(
    slurm: SlurmCluster, tmp_path: Path, ranks_per_node: int
) -> None:
    reference = LaunchedTraining(tmp_path, "reference", "--np=1")
    code, output = reference.finish()
    assert code == 0, output
    done = submit(slurm, tmp_path, "job", "--nodes=2", "--follow", f"--ranks-per-node={ranks_per_node}")
    assert done.returncode == 0, done.stderr
    newest = sorted((tmp_path / "job").glob("checkpoints/update-*"))[-1]
    apart = difference(load_file(newest / "tensors.safetensors"), reference.tensors())
    print(f"2 nodes × {ranks_per_node} ranks: weights {apart:.1e} apart")
    assert apart < 1e-11


@pytest.mark.soak
@pytest.mark.parametrize("event", [warn, requeue, preempt], ids=lambda event: event.__name__)
def test_interrupted_it_goes_on_to_the_same_weights(slurm: SlurmCluster, tmp_path: Path, event) -> None:
    """Snapshots come only when it is asked to stop: an update that was not in that one would have to be done again."""
    longer = ("run.updates=200", "checkpoint.every_updates=1000")
    reference = LaunchedTraining(tmp_path, "reference", "--np=1", *longer)
    code, output = reference.finish()
    assert code == 0, output
    done = submit(slurm, tmp_path, "job", "--nodes=2", *longer)
    assert done.returncode == 0, done.stderr
    number, folder = int(done.stdout), tmp_path / "job"

    def updates() -> list[int]:
        path = folder / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["update"] for line in lines if line.endswith("}")]

    slurm.wait("update 5", lambda: len(updates()) >= 5, 120)
    seen = len(updates())
    event(SimpleNamespace(slurm=slurm, folder=tmp_path), number)
    assert slurm.wait_for_job(number, "COMPLETED", "FAILED", "CANCELLED", timeout_seconds=300) == "COMPLETED"
    assert updates() == list(range(1, 201))
    assert "Restarts=1 " in slurm.run(["scontrol", "show", "job", str(number)]).stdout
    said = next(folder.rglob(f"slurm-{number}.out")).read_text()
    (after,) = re.findall(r"going on after update (\d+)", said)
    assert seen <= int(after) < 200
    ours, theirs = (
        load_file(one / "checkpoints" / "update-00000200" / "tensors.safetensors")
        for one in (folder, reference.run_folder)
    )
    apart = difference(ours, theirs)
    print(f"{event.__name__} at update {seen}, went on after {after}: weights {apart:.1e} apart")
    assert apart < 1e-11
