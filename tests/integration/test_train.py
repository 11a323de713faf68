"""`distxcept train` as a user runs it: whole, interrupted, gone on with on other engines, and refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from launchers import MPIRUN, run, skip_without
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from distxcept.cluster.lock import RunLock
from distxcept.data.advice import NOTICEABLE

DISTXCEPT = str(Path(sys.executable).with_name("distxcept"))

CONFIG = {
    "run": {"updates": 30, "log_every": 1, "seed": 3},
    # Frozen, because a short backward pass is traced faster; test_equivalence.py trains everything.
    "model": {
        "image_size": 71,
        "width": 0.0625,
        "middle_blocks": 1,
        "dropout": 0.3,
        "batchnorm_momentum": 0.9,
        "freeze": "block13",
    },
    "data": {
        "train": {"kind": "synthetic", "samples": 42, "classes": 3},
        "validation": {"kind": "synthetic", "samples": 13, "classes": 3},
        "augment": {"flip": True, "crop": {}},
    },
    "batch": {"global": 16, "virtual": 4},
    "optimizer": {
        "learning_rate": 0.01,
        "clip_norm": 1.0,
        "ema": 0.9,
        "weight_decay": 1.0e-4,
        "pruning": {"final_sparsity": 0.75, "end_update": 20, "every_updates": 4},
    },
    "precision": "float64",
    "engine": {"threads": 1},
    "checkpoint": {"every_minutes": None, "best_metric": None},
}


def command(folder: Path, name: str, *overrides: str) -> list[str]:
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    return [
        DISTXCEPT, "train", str(config), f"run.dir={folder}", f"run.name={name}", "run.evaluate_every=1000", *overrides
    ]  # fmt: skip


def interrupt_after(
    update: int, folder: Path, program: list[str], number: signal.Signals = signal.SIGINT
) -> subprocess.CompletedProcess[str]:
    """Starts the run, sends the signal once metrics.jsonl tells of `update`, and waits for its end."""
    metrics = folder / "metrics.jsonl"
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 400
    while process.poll() is None and time.monotonic() < deadline:
        if metrics.exists() and len(metrics.read_text().splitlines()) >= update:
            process.send_signal(number)
            break
        time.sleep(0.05)
    stdout, stderr = process.communicate(timeout=400)
    return subprocess.CompletedProcess(program, process.returncode, stdout, stderr)


def last_tensors(folder: Path) -> dict[str, np.ndarray]:
    newest = sorted(folder.glob("checkpoints/update-*"))[-1]
    assert newest.name == "update-00000030"
    return load_file(newest / "tensors.safetensors")


def difference(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    assert a.keys() == b.keys()
    return max(float(np.max(np.abs(a[k] - b[k])) / max(np.max(np.abs(a[k])), 1e-30)) for k in a)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    done = run(command(folder, "whole"))
    assert done.returncode == 0, done.stderr
    return folder / "whole"


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interrupted")
    done = interrupt_after(2, folder / "stopped", command(folder, "stopped"))
    assert done.returncode == 75, done.stderr
    assert "run the same command again" in done.stderr
    return folder / "stopped"


@pytest.fixture(scope="module")
def killed(interrupted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interrupted run, gone on with and then ended by SIGKILL, at whatever moment it came."""
    folder = tmp_path_factory.mktemp("killed")
    shutil.copytree(interrupted, folder / "killed")
    (snapshot,) = interrupted.glob("checkpoints/update-*")
    stopped_at = int(snapshot.name.split("-")[1])
    assert 2 <= stopped_at < 25
    program = command(folder, "killed", "checkpoint.every_updates=1")
    done = interrupt_after(stopped_at + 3, folder / "killed", program, signal.SIGKILL)
    assert done.returncode == -signal.SIGKILL
    assert f"going on after update {stopped_at}" in done.stderr
    return folder / "killed"


def test_run_folder(undisturbed):
    assert {path.name for path in undisturbed.iterdir()} >= {
        "config.yaml", "plan.json", "env.json", "metrics.jsonl", "events.jsonl", "checkpoints"
    }  # fmt: skip
    lines = [json.loads(line) for line in (undisturbed / "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["kind"] == "train"]
    assert [line["update"] for line in train] == list(range(1, 31))
    # 42 samples: two updates of 16 and one of 10, in ten epochs
    assert [line["samples"] for line in train[:4]] == [16, 32, 42, 58]
    assert train[-1]["samples"] == 420
    assert [line["epoch"] for line in train[:4]] == [0, 0, 0, 1]
    (validation,) = (line for line in lines if line["kind"] == "validation")
    assert validation["samples"] == 13
    assert validation["update"] == 30
    assert np.mean([line["loss"] for line in train[-3:]]) < np.mean([line["loss"] for line in train[:3]])


def test_predictions_and_report(undisturbed):
    """Of the last evaluation: they tell what metrics.jsonl tells."""
    lines = [json.loads(line) for line in (undisturbed / "metrics.jsonl").read_text().splitlines()]
    (told,) = (line for line in lines if line["kind"] == "validation")
    found = json.loads((undisturbed / "predictions.json").read_text())
    assert (found["update"], found["samples"], len(found["classes"])) == (30, 13, 3)
    right = sum(n for label, predicted, n in found["confusion"] if label == predicted)
    assert right / 13 == pytest.approx(told["accuracy"])
    assert len(found["best"]) == min(12, right)
    assert found["worst"]
    assert all(sample["thumbnail"].startswith("data:image/jpeg") for sample in found["worst"])
    page = (undisturbed / "report.html").read_text()
    assert '<span class="state done">done</span>' in page
    assert page.count("<img ") == len(found["best"]) + len(found["worst"])


def test_event_files(undisturbed):
    """TensorBoard reads from them what the run folder's own files tell, and the rest of what is promised."""
    parts = ("train", "validation")
    train, validation = (EventAccumulator(str(undisturbed / "tensorboard" / part)).Reload() for part in parts)
    lines = [json.loads(line) for line in (undisturbed / "metrics.jsonl").read_text().splitlines()]
    for kind, found in zip(parts, (train, validation), strict=True):
        told = [line for line in lines if line["kind"] == kind]
        assert set(found.Tags()["scalars"]) == set(told[0]) - {"kind", "update"}
        for name in found.Tags()["scalars"]:
            events = [(event.step, event.value) for event in found.Scalars(name)]
            assert events == [(line["update"], pytest.approx(float(line[name]), rel=1e-6)) for line in told]
    images = {tag.partition(" (")[0]: validation.Images(tag) for tag in validation.Tags()["images"]}
    assert images.keys() >= {"confusion matrix", "most wrong"}
    assert all([event.step for event in events] == [30] for events in images.values())
    weights = {name for name in last_tensors(undisturbed) if name.startswith("weights/")}
    assert set(validation.Tags()["histograms"]) == {name.removeprefix("weights/") for name in weights}
    hyperparameters = validation.PluginTagToContent("hparams")
    assert set(hyperparameters) == {"_hparams_/session_start_info", "_hparams_/session_end_info"}
    assert b"optimizer.learning_rate" in hyperparameters["_hparams_/session_start_info"]


def test_pruned_weights_are_zero(undisturbed):
    """Three quarters of each trained kernel, the moving average too; nothing of what is spared."""
    tensors = last_tensors(undisturbed)
    for kind in ("weights", "ema"):
        for name, part in (
            ("block14_sepconv1/pointwise_kernel", 0.75),
            ("block14_sepconv2/pointwise_kernel", 0.75),
            ("block14_sepconv2/depthwise_kernel", 0.0),
            ("predictions/kernel", 0.0),
        ):
            kernel = tensors[f"{kind}/{name}"]
            assert np.sum(kernel == 0) == int(part * kernel.size), name
    assert np.all(tensors["weights/block5_sepconv1/pointwise_kernel"] != 0)  # frozen


def test_telemetry(undisturbed):
    samples = telemetry(undisturbed)
    assert {(line["kind"], line["rank"]) for line in samples} == {("sample", 0)}
    assert (samples[0]["phase"], samples[0]["update"]) == ("start", 0)
    assert (samples[-1]["update"], samples[-1]["cards"]) == (30, [])
    assert samples[-1]["rss_bytes"] > 100 * 2**20
    (events,) = undisturbed.glob("tensorboard/telemetry-rank-0/events.out.tfevents.*")
    assert events.read_bytes().count(b"host/rss_gib") == len(samples)
    told = [json.loads(line) for line in (undisturbed / "events.jsonl").read_text().splitlines()]
    # Nothing to notice in a healthy run, but that tiny updates wait for data where others use the cores: if it is true.
    assert {event["kind"] for event in told} <= {"started", "saved", "ended", "slow_input"}
    records = [json.loads(line) for line in (undisturbed / "metrics.jsonl").read_text().splitlines()]
    waits = {record["update"]: record["data_wait"] for record in records if record["kind"] == "train"}
    for event in told:
        if event["kind"] == "slow_input":
            assert max(waits[event["update"] - back] for back in range(3)) >= NOTICEABLE


def telemetry(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "telemetry.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("engine", ["single", "mirrored", pytest.param("horovod", marks=pytest.mark.mpi)])
def test_interrupted_killed_and_gone_on_with_on_any_engine(undisturbed, killed, tmp_path, engine):
    """The same as of the run that nobody disturbed, on one device to the bit; and every update is told once."""
    folder = tmp_path / "elsewhere"
    shutil.copytree(killed, folder)
    if engine == "horovod":
        skip_without("horovod", "mpirun")
        done = run([*MPIRUN, "-np", "2", *command(tmp_path, "elsewhere")])
    elif engine == "mirrored":
        done = run(command(tmp_path, "elsewhere", "engine.devices=2", "batch.micro=8"))
    else:
        done = run(command(tmp_path, "elsewhere"))
    assert done.returncode == 0, done.stderr
    assert "going on after update" in done.stderr
    assert difference(last_tensors(undisturbed), last_tensors(folder)) <= (0 if engine == "single" else 1e-11)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines if line["kind"] == "train"] == list(range(1, 31))
    assert {line["rank"] for line in telemetry(folder)} == ({0, 1} if engine == "horovod" else {0})


def test_another_training_is_refused(interrupted):
    done = run(command(interrupted.parent, "stopped", "optimizer.learning_rate=0.5"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "optimizer.learning_rate: 0.01 → 0.5" in line


def test_evaluate_gives_the_figures_of_the_run(undisturbed):
    """From config.yaml and the snapshot alone, with other batches than the run's."""
    lines = [json.loads(line) for line in (undisturbed / "metrics.jsonl").read_text().splitlines()]
    (told,) = (line for line in lines if line["kind"] == "validation")
    done = run([DISTXCEPT, "evaluate", f"{undisturbed}:update=30", "--json", "batch.micro=8"])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["samples"], found["update"]) == (13, 30)
    assert found["validation_loss"] == pytest.approx(told["loss"], rel=1e-9)
    assert found["validation_accuracy"] == told["accuracy"]


@pytest.mark.parametrize("engine", ["mirrored", pytest.param("horovod", marks=pytest.mark.mpi)])
def test_evaluate_counts_every_sample_once_on_any_engine(undisturbed, engine):
    """13 samples on 2 replicas: the last batch of one of them has padding in it."""
    command = [DISTXCEPT, "evaluate", str(undisturbed), "--json"]
    if engine == "horovod":
        skip_without("horovod", "mpirun")
        done = run([*MPIRUN, "-np", "2", *command])
    else:
        done = run([*command, "engine.devices=2"])
    assert done.returncode == 0, done.stderr
    found, of_run = json.loads(done.stdout), json.loads((undisturbed / "predictions.json").read_text())
    assert (found["samples"], sum(map(sum, found["confusion_matrix"]))) == (13, 13)
    cells = {(i, k, n) for i, row in enumerate(found["confusion_matrix"]) for k, n in enumerate(row) if n}
    assert cells == {tuple(cell) for cell in of_run["confusion"]}
    lines = [json.loads(line) for line in (undisturbed / "metrics.jsonl").read_text().splitlines()]
    assert found["validation_loss"] == pytest.approx(lines[-1]["loss"], rel=1e-9)


def test_a_run_folder_in_use_is_refused(interrupted):
    lock = RunLock(interrupted, 30.0)
    lock.acquire()
    try:
        done = run(command(interrupted.parent, "stopped"))
    finally:
        lock.release()
    assert done.returncode == 2
    assert f"stopped is in use by process {os.getpid()} on" in done.stderr


@pytest.mark.mpi
def test_several_tasks_never_train_separately(tmp_path):
    skip_without("mpirun")
    done = run([*MPIRUN, "-np", "2", *command(tmp_path, "apart", "engine.name=single")])
    assert done.returncode == 2
    assert "2 tasks were launched, but engine.name is single" in done.stderr
    assert [path.name for path in (tmp_path / "apart").iterdir()] == ["logs"]
