"""Bad files of every kind, all on one rank's share: the run goes on, lists each, and gives the result of one device."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from launchers import MPIRUN, run, skip_without
from odd_files import bad_files, encode, picture
from safetensors.numpy import load_file

from distxcept.batching import plan_batches
from distxcept.data.order import update_indices

DISTXCEPT = str(Path(sys.executable).with_name("distxcept"))
SAMPLES, GLOBAL, VIRTUAL, SEED = 64, 32, 8, 5


def second_ranks_samples() -> list[int]:
    plan = plan_batches(
        samples=SAMPLES, global_batch=GLOBAL, virtual_batch=VIRTUAL, micro_batch=VIRTUAL, replicas=2
    )
    indices = [
        update_indices(plan, seed=SEED, epoch=0, update=update, virtual=plan.block(update, 1))
        for update in range(plan.updates_per_epoch)
    ]
    return [int(index) for index in np.concatenate(indices).ravel()]


@pytest.fixture(scope="module")
def reasons(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with a manifest and a config, and the reason expected for each bad file."""
    folder = tmp_path_factory.mktemp("odd")
    rows = [[f"good{index}.jpg", str(index % 3)] for index in range(SAMPLES)]
    for row in rows:
        (folder / row[0]).write_bytes(encode(picture(int(row[0][4:-4])), "JPEG", quality=90))
    expected = {}
    bad = [(name, content, reason) for name, (content, reason) in bad_files().items()]
    bad.append(("vanished.jpg", None, "No such file"))
    for index, (name, content, reason) in zip(second_ranks_samples(), bad, strict=False):
        if content is not None:
            (folder / name).write_bytes(content)
        rows[index][0] = name
        expected[name] = reason
    with (folder / "manifest.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path", "label"], *rows])
    config = {
        "run": {"updates": 2, "log_every": 1, "seed": SEED, "dir": str(folder)},
        "model": {"image_size": 71, "width": 0.0625, "middle_blocks": 1, "freeze": "backbone"},
        "data": {
            "train": {"kind": "manifest", "path": str(folder / "manifest.csv")},
            "max_bad_fraction": 0.5,
        },
        "batch": {"global": GLOBAL, "virtual": VIRTUAL},
        "optimizer": {"learning_rate": 0.01, "warmup_updates": 2},
        "precision": "float64",
        "engine": {"threads": 1, "check_every": 1},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder, expected


def train(folder: Path, name: str, *overrides: str, ranks: int = 1):
    launcher = [*MPIRUN, "-np", str(ranks)] if ranks > 1 else []
    return run([*launcher, DISTXCEPT, "train", str(folder / "config.yaml"), f"run.name={name}", *overrides])


def check_listing(path: Path, expected: dict[str, str]) -> None:
    listed = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(Path(line["path"]).name for line in listed) == sorted(expected)
    for line in listed:
        assert expected[Path(line["path"]).name] in line["reason"]


@pytest.mark.mpi
def test_bad_files_on_one_rank(reasons):
    skip_without("horovod", "mpirun")
    folder, expected = reasons
    results = {}
    for name, ranks in (("one", 1), ("two", 2)):
        done = train(folder, name, ranks=ranks)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("devices  engine") == done.stderr.count("done    2 updates") == 1, (
            "one rank draws"
        )
        assert done.stderr.count("╭─ distxcept") == 2
        assert "(CPU asked for)" in done.stderr  # the tests hide all cards
        assert done.stderr.count("the warm-up of 2 updates is not over when the run ends after 2") == 1
        check_listing(folder / name / "bad_images.jsonl", expected)
        lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        assert lines[-1]["samples"] == SAMPLES - len(expected)
        events = [json.loads(line) for line in (folder / name / "events.jsonl").read_text().splitlines()]
        told = [(one["update"], one["count"]) for one in events if one["kind"] == "bad_images"]
        assert told == [(2, len(expected))]
        results[name] = load_file(folder / name / "checkpoints" / "update-00000002" / "tensors.safetensors")
    one, two = results["one"], results["two"]
    largest = max(np.max(np.abs(one[k] - two[k])) / max(np.max(np.abs(one[k])), 1e-30) for k in one)
    assert largest < 1e-11


@pytest.mark.mpi
def test_too_many_end_all_ranks_with_the_data_code(reasons):
    skip_without("horovod", "mpirun")
    folder, expected = reasons
    done = train(folder, "strict", "data.max_bad_fraction=0.01", ranks=2)
    assert done.returncode == 3
    assert "images cannot be read, more than data.max_bad_fraction = 0.01 allows" in done.stderr
    assert "Traceback" not in done.stderr
    listed = (folder / "strict" / "bad_images.jsonl").read_text().splitlines()
    assert 0 < len(listed) <= len(expected)
