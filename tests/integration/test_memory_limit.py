"""`memory.limit` on a CPU: `batch.micro: auto` finds by trial what fits, and the result does not depend on it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from equivalence.cases import differences
from launchers import run
from safetensors.numpy import load_file

from distxcept.config.load import load_config
from distxcept.config.size import parse_size
from distxcept.memory.candidates import micro_batches
from distxcept.memory.planning import build_plan
from distxcept.memory.probe import run_child

DISTXCEPT = str(Path(sys.executable).with_name("distxcept"))
REAL = {"image_size": 128}
SMALL = {"image_size": 192, "width": 0.5, "freeze": "backbone"}
TOO_LITTLE = "900MiB"
"""Of the small one, whose whole batch of 64 needs some 1050 MiB with TensorFlow's plain kernels, with oneDNN's more."""
BUDGETS = ("1700MiB", "2000MiB", "2300MiB", "2600MiB")
"""Of the real Xception, whose whole batch of 64 needs about 3.4 GiB."""
FLOAT32_LIMIT = 2e-5
# Without oneDNN TensorFlow raises an error where memory ends.
PLAIN = ["env", "TF_ENABLE_ONEDNN_OPTS=0", "TF_NUM_INTRAOP_THREADS=2"]


class Run:
    def __init__(self, folder: Path, name: str, model: dict, updates: int = 1):
        self.folder, self.name = folder, name
        self.file = folder / f"{name}.yaml"
        config = {
            "run": {"updates": updates, "seed": 3, "dir": str(folder)},
            "model": model,
            "data": {"train": {"kind": "synthetic", "samples": 64, "classes": 10}},
            "batch": {"global": 64, "virtual": 4},
            "checkpoint": {"every_minutes": None},
        }
        self.file.write_text(yaml.safe_dump(config))

    @property
    def path(self) -> Path:
        return self.folder / self.name

    def train(self, *overrides: str, launch: list[str] = PLAIN, command=("train",)) -> str:
        return self.run(*command, *overrides, launch=launch)

    def run(self, command: str, *arguments: str, launch: list[str] = PLAIN) -> str:
        cache = f"XDG_CACHE_HOME={self.folder / 'cache'}"
        done = run(["env", cache, *launch, DISTXCEPT, command, str(self.file), *arguments], 1500)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stderr

    def plan(self) -> dict:
        return json.loads((self.path / "plan.json").read_text())

    def tensors(self) -> dict[str, np.ndarray]:
        (snapshot,) = (self.path / "checkpoints").glob("update-*")
        return load_file(snapshot / "tensors.safetensors")

    def larger_by_hand(self, limit: str) -> tuple[int, bool]:
        """The next larger micro batch, and whether a run with it gets along without a smaller one or rematerialisation."""
        config = load_config(self.file, [])
        larger = min(m for m in micro_batches(build_plan(config, 64, 1)) if m > self.plan()["micro_batch"])
        by_hand = [str(self.file), "run.name=by_hand", "run.resume=never", f"batch.micro={larger}"]
        by_hand += ["run.updates=3", "checkpoint.every_updates=1"]  # a run that saves, as runs do
        by_hand += ["memory.remat=off"]  # else it would start with it where the estimate says so
        done = run([*PLAIN, DISTXCEPT, "train", *by_hand, f"memory.limit={limit}"], 1500)
        return larger, done.returncode == 0 and "ran out of memory" not in done.stderr


def measured(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("  micro batch")]


@pytest.mark.parametrize(("limit", "fits"), [(None, True), (TOO_LITTLE, False)])
def test_a_trial_tells_whether_a_candidate_fits(tmp_path, monkeypatch, limit: str | None, fits: bool) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    small = Run(tmp_path, "small", SMALL)
    config = load_config(small.file, ["batch.micro=64"])
    request = {
        "config": config.model_dump(mode="json", by_alias=True),
        "classes": 10,
        "remat": False,
        "virtual_batches": 16,
        "padded": False,
        "device": "CPU:0",
        "threads": 1,
        "limit_bytes": None if limit is None else parse_size(limit),
        "cores": 1,
    }
    measured = run_child(request, 64)
    assert measured.fits is fits, measured
    if fits:
        assert measured.seconds and measured.peak_bytes and measured.peak_bytes > 100 * 2**20


@pytest.mark.soak
def test_auto_takes_what_fits_and_remembers_it(tmp_path: Path) -> None:
    small = Run(tmp_path, "small", SMALL)
    said = small.train(f"memory.limit={TOO_LITTLE}")
    assert measured(said)
    assert small.plan()["micro_batch"] < 64
    again = small.train(f"memory.limit={TOO_LITTLE}", "run.resume=never")
    assert not measured(again) and "measuring" not in again
    probed = small.run("plan", "--probe", f"memory.limit={TOO_LITTLE}")
    assert "measuring" not in probed and measured(probed) == measured(said)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_four_budgets_give_the_same_weights(tmp_path: Path) -> None:
    found = {}
    for limit in BUDGETS:
        one = Run(tmp_path, limit, REAL)
        said = one.train(f"memory.limit={limit}")
        trials, plan = measured(said), one.plan()
        print(f"{limit}: {len(trials)} trials, micro {plan['micro_batch']}, remat {plan['remat']}", *trials)
        assert 1 <= len(trials) <= 6
        assert plan["micro_batch"] < 64
        if not plan["remat"]:
            larger, fits = one.larger_by_hand(limit)
            print(f"  micro batch {larger} by hand: {'fits' if fits else 'does not fit'}")
            assert not fits
        found[limit] = one.tensors()
    first = found[BUDGETS[0]]
    for limit in BUDGETS[1:]:
        assert max(differences(found[limit], first).values()) <= FLOAT32_LIMIT


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_the_supervisor_recovers_where_tensorflow_dies(tmp_path: Path) -> None:
    """With oneDNN a process that gets no memory crashes instead of raising."""
    model = {"image_size": 128, "width": 0.25}
    calm, starved = Run(tmp_path, "calm", model), Run(tmp_path, "starved", model)
    calm.train("batch.micro=4", launch=["env", "TF_ENABLE_ONEDNN_OPTS=1"])
    said = starved.train(
        "batch.micro=64",
        "memory.limit=1100MiB",
        "memory.remat=off",  # with it, which the estimate would choose, nothing dies
        launch=["env", "TF_ENABLE_ONEDNN_OPTS=1"],
        command=("launch", "--np", "1", "--max-restarts", "5"),
    )
    print(said)
    assert "going on with micro batch" in said
    assert starved.plan()["micro_batch"] < 64
    assert max(differences(starved.tensors(), calm.tensors()).values()) <= FLOAT32_LIMIT
