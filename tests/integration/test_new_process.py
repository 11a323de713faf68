"""Devices of one process ran out of memory: `distxcept train` resumes in a new process, to the same weights."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from equivalence.cases import differences
from equivalence.starving import ENVIRON
from launchers import python
from safetensors.numpy import load_file

UPDATES, LIMIT = 4, 1e-11
CONFIG = {
    "run": {"updates": UPDATES, "seed": 3, "log_every": 1},
    "model": {"image_size": 144, "width": 0.25, "middle_blocks": 0, "dropout": 0.3},
    "data": {"train": {"kind": "synthetic", "samples": 48, "classes": 3}},
    "batch": {"global": 24, "virtual": 4, "micro": 12},
    "optimizer": {"name": "adam", "ema": 0.9},
    "precision": "float64",
    "engine": {"devices": 2, "threads": 1},
    "checkpoint": {"every_minutes": None},
}


def train(folder: Path, command: list[str], *overrides: str) -> tuple[Path, str]:
    """The run folder, and what was said on stderr."""
    folder.mkdir()
    (folder / "cfg.yaml").write_text(yaml.safe_dump(CONFIG))
    done = subprocess.run(
        [*command, "train", "cfg.yaml", *overrides],
        cwd=folder,
        env={**os.environ, **ENVIRON},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / "runs" / "cfg", done.stderr


def tensors(run: Path):
    return load_file(run / "checkpoints" / f"update-{UPDATES:08d}" / "tensors.safetensors")


@pytest.mark.parametrize("resume", ["auto", "never"])
def test_it_resumes_with_a_smaller_plan_and_the_same_weights(tmp_path: Path, resume: str):
    calm, _ = train(tmp_path / "calm", [sys.executable, "-m", "distxcept.cli.main"])
    starved, said = train(tmp_path / "starved", python("starved_train.py"), f"run.resume={resume}")
    assert "resuming in a new process with a smaller memory plan" in said
    events = [json.loads(line) for line in (starved / "events.jsonl").read_text().splitlines()]
    (ran_out,) = [event for event in events if event["kind"] == "out_of_memory"]
    assert (ran_out["update"], ran_out["micro"]) == (1, 4), "one update was done, and none is lost"
    assert [event["update"] for event in events if event["kind"] == "resumed"] == [1]
    assert json.loads((starved / "plan.json").read_text())["micro_batch"] == 4
    assert max(differences(tensors(starved), tensors(calm)).values()) <= LIMIT
