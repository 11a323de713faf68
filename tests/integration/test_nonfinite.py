"""One sample that overflows, on one replica: every replica skips that update, and nothing else is lost.

Every class has one sample, and a class weight near the largest number makes that sample's gradient infinite. So the
config alone plants the infinity in one micro batch of one replica, and `distxcept train` does the rest.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from launchers import MPIRUN, python, run, skip_without
from safetensors.numpy import load_file

from distxcept.batching import plan_batches
from distxcept.data.order import update_indices

SAMPLES, GLOBAL, VIRTUAL, SEED = 48, 8, 4, 3
POISONED = {2: 1, 4: 0, 5: 1, 6: 1}
"""Number of an update, from 1, and the replica that gets its bad sample. The last three in a row are too many."""
OVERFLOWS = {"float32": 3e38, "mixed_float16": 1e8}
"""A class weight that overflows the format; the second is harmless in float32."""


def config(precision: str) -> dict:
    plan = plan_batches(
        samples=SAMPLES, global_batch=GLOBAL, virtual_batch=VIRTUAL, micro_batch=VIRTUAL, replicas=2
    )
    bad_samples = [
        update_indices(plan, seed=SEED, epoch=0, update=update - 1, virtual=plan.block(update - 1, replica))[
            0, 1
        ]
        for update, replica in POISONED.items()
    ]
    return {
        "run": {"updates": 20, "log_every": 1, "seed": SEED, "max_nonfinite_updates": 3},
        # Nothing of this depends on depth, and a short backward pass is traced faster.
        "model": {
            "image_size": 71,
            "width": 0.0625,
            "middle_blocks": 1,
            "freeze": "block13",
            "class_weights": {int(sample): OVERFLOWS[precision] for sample in bad_samples},
        },
        "data": {"train": {"kind": "synthetic", "samples": SAMPLES, "classes": SAMPLES}},
        "batch": {"global": GLOBAL, "virtual": VIRTUAL, "micro": VIRTUAL},
        "optimizer": {"learning_rate": 0.01, "ema": 0.9},
        "precision": precision,
        "engine": {"threads": 1, "check_every": 1},
        "checkpoint": {"every_updates": 1, "every_minutes": None, "keep": 20},
    }


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((engine, precision), id=f"{engine}-{precision}", marks=marks)
        for engine, precision, marks in (
            ("mirrored2", "float32", []),
            ("mirrored2", "mixed_float16", [pytest.mark.soak]),
            ("horovod2", "float32", [pytest.mark.mpi, pytest.mark.soak]),
            ("horovod2", "mixed_float16", [pytest.mark.mpi]),
        )
    ],
)
def diverged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The precision and the folder of a run that ended as it should: exit 5 with one line that tells why."""
    engine, precision = request.param
    folder = tmp_path_factory.mktemp("nonfinite")
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config(precision)))
    # The last snapshot is slow: a rank that left before the chief has written it would end the chief too.
    train = python("slow_disk.py", max(POISONED), "train", file, f"run.dir={folder}", "run.name=run")
    if engine == "horovod2":
        skip_without("horovod", "mpirun")
        done = run([*MPIRUN, "-np", "2", *train], timeout_seconds=500)
    else:
        done = run([*train, "engine.devices=2"], timeout_seconds=500)
    assert done.returncode == 5, done.stderr[-4000:]
    assert "3 updates in a row had a non-finite gradient (the last is 6)" in done.stderr
    return precision, folder / "run"


def snapshot(folder: Path, update: int) -> tuple[dict[str, np.ndarray], dict]:
    place = folder / "checkpoints" / f"update-{update:08d}"
    state = json.loads((place / "state.json").read_text())
    return load_file(place / "tensors.safetensors"), state["progress"]


def changed(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> set[str]:
    return {name for name in a if a[name].tobytes() != b[name].tobytes()}


@pytest.mark.timeout(900)
def test_all_replicas_skip_the_same_updates(diverged: tuple[str, Path]) -> None:
    """Equality of the replicas was checked after every update by the run itself, or it would have ended with 6."""
    precision, folder = diverged
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    skipped = [event for event in events if event["kind"] == "skipped_update"]
    assert [event["update"] for event in skipped] == list(POISONED)
    remedy = "the loss scale adapts" if precision == "mixed_float16" else "lower optimizer.learning_rate"
    assert all(remedy in event["message"] for event in skipped)
    counted = [snapshot(folder, update)[1]["skipped_updates"] for update in range(1, 7)]
    assert counted == [0, 1, 1, 2, 3, 4]


@pytest.mark.timeout(900)
def test_a_skipped_update_changes_nothing_and_the_next_one_proceeds(diverged: tuple[str, Path]) -> None:
    precision, folder = diverged
    tensors = [snapshot(folder, update)[0] for update in range(1, 7)]
    scaling = {"counters/loss_scale", "counters/good_updates"} if precision == "mixed_float16" else set()
    for before, after, update in zip(tensors, tensors[1:], range(2, 7), strict=False):
        if update in POISONED:
            assert changed(before, after) <= scaling
        else:
            assert {"weights/predictions/kernel", "ema/predictions/kernel", "counters/applied"} <= changed(
                before, after
            )
    assert [int(values["counters/applied"].reshape(())) for values in tensors] == [1, 1, 2, 2, 2, 2]


@pytest.mark.timeout(900)
def test_the_metrics_stay_readable_as_json(diverged: tuple[str, Path]) -> None:
    _, folder = diverged

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    lines = (folder / "metrics.jsonl").read_text().splitlines()
    records = {r["update"]: r for r in (json.loads(line, parse_constant=refuse) for line in lines)}
    assert records[2]["gradient_norm"] is None
    assert records[3]["gradient_norm"] > 0


@pytest.mark.timeout(900)
def test_the_loss_scale_halves_with_each_overflow(diverged: tuple[str, Path]) -> None:
    precision, folder = diverged
    tensors = [snapshot(folder, update)[0] for update in range(1, 7)]
    scales = [float(values["counters/loss_scale"].reshape(())) for values in tensors]
    halvings = [0, 1, 1, 2, 3, 4]
    assert scales == [2.0 ** (15 - n) if precision == "mixed_float16" else 1.0 for n in halvings]


@pytest.mark.timeout(900)
def test_the_last_good_weights_are_kept(diverged: tuple[str, Path]) -> None:
    _, folder = diverged
    last, progress = snapshot(folder, 6)
    good, _ = snapshot(folder, 3)
    assert progress["nonfinite_in_a_row"] == 3
    weights = [name for name in last if name.startswith(("weights/", "slots/", "ema/"))]
    assert weights and not changed({n: last[n] for n in weights}, {n: good[n] for n in weights})
    assert all(np.all(np.isfinite(value)) for value in last.values())
