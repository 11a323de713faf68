"""Trainings that are as small as they can be, to be killed and gone on with."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml
from launchers import MPIRUN, RANK_ENVIRON, python
from safetensors.numpy import load_file

UPDATES = 40

CONFIG: dict[str, Any] = {
    "run": {"updates": UPDATES, "log_every": 1, "seed": 3},
    # Frozen, because a short backward pass is traced faster; what is saved and restored is of every kind all the same.
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
        "augment": {"flip": True, "crop": {}},
    },
    "batch": {"global": 12, "virtual": 4},
    "optimizer": {"learning_rate": 0.01, "clip_norm": 1.0, "ema": 0.9, "weight_decay": 1.0e-4},
    "precision": "float64",
    "engine": {"threads": 1, "peer_timeout": 5},
    "checkpoint": {"every_minutes": None, "every_updates": 1, "best_metric": None},
}


def train(
    folder: Path,
    *more: str,
    ranks: int = 1,
    devices: int = 1,
    fault: tuple[str, int, int] | None = None,
) -> list[str]:
    """The command of a run in `folder`; always the same, except for ranks, devices and what `more` overrides."""
    file = folder.parent / f"{folder.name}.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    overrides = [f"run.dir={folder.parent}", f"run.name={folder.name}", f"engine.devices={devices}", *more]
    program = python("faulty.py", *fault) if fault else [sys.executable, "-m", "distxcept.cli.main"]
    program += ["train", str(file), *overrides]
    return [*MPIRUN, "-np", str(ranks), *program] if ranks > 1 else program


def start(command: list[str]) -> subprocess.Popen:
    return subprocess.Popen(
        command,
        env={**os.environ, **RANK_ENVIRON},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ranks_of(folder: Path) -> list[psutil.Process]:
    """Processes that train in this run folder, whoever started them."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if (
            f"run.name={folder.name}" in line
            and "mpirun" not in line[0]
            and f"run.dir={folder.parent}" in line
        ):
            found.append(process)
    return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]


def updates_told(folder: Path) -> int:
    try:
        return len((folder / "metrics.jsonl").read_text().splitlines())
    except FileNotFoundError:
        return 0


def kill_a_rank(folder: Path, command: list[str], chance: random.Random, timeout_seconds: float = 300) -> int:
    """Runs the command and kills one of its ranks with SIGKILL, at any moment from the start on; returns the update."""
    process = start(command)
    after = updates_told(folder) + chance.randrange(0, UPDATES // 3)
    deadline = time.monotonic() + timeout_seconds
    while process.poll() is None and updates_told(folder) < after and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(chance.random() * 0.1)
    alive = ranks_of(folder)
    if alive:
        victim = chance.choice(sorted(alive, key=lambda one: one.pid))
        victim.send_signal(signal.SIGKILL)
    process.communicate(timeout=timeout_seconds)
    for left in ranks_of(folder):
        left.wait(timeout=60)
    return updates_told(folder)


def finish(folder: Path, command: list[str], timeout_seconds: float = 300) -> dict[str, np.ndarray]:
    process = start(command)
    _, stderr = process.communicate(timeout=timeout_seconds)
    assert process.returncode == 0, stderr[-4000:]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == list(range(1, UPDATES + 1))
    return load_file(folder / "checkpoints" / f"update-{UPDATES:08d}" / "tensors.safetensors")


def difference(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    assert a.keys() == b.keys()
    return max(float(np.max(np.abs(a[k] - b[k])) / max(np.max(np.abs(a[k])), 1e-30)) for k in a)
