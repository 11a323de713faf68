"""Host memory does not grow with the number of samples, and an epoch begins at once, wherever it begins."""

import json
import os
import subprocess
import sys

import pytest
from test_dataset import write_images

PROGRAM = """
import json, sys, time
from distxcept.batching import plan_batches
from distxcept.config.schema import Augment, Crop, FolderSource
from distxcept.data.dataset import Input, Reading
from distxcept.data.sources import open_source
from distxcept.memory.limit import peak_bytes

source = open_source(FolderSource(kind="folder", path=sys.argv[1]))
plan = plan_batches(samples=len(source), global_batch=16, virtual_batch=16, micro_batch=16)
starts = []
for epoch in range(3):
    begun = time.perf_counter()
    reading = Reading(source=source, image_size=71, seed=1, augment=Augment(crop=Crop()), max_pixels=10**8,
                      memory="4MB", threads=2)
    first = epoch * plan.updates_per_epoch + plan.updates_per_epoch // 2
    with Input(reading, plan, range(1), first=first) as batches:
        next(batches)
        starts.append(time.perf_counter() - begun)
        for _ in range(30):
            next(batches)
print(json.dumps({"samples": len(source), "peak_bytes": peak_bytes(), "start_seconds": min(starts[1:])}))
"""


def make_folder(root, seeds, count):
    """Many names for few files: links cost no space."""
    for label in range(2):
        (root / f"class_{label}").mkdir(parents=True)
    for number in range(count):
        os.link(seeds[number % len(seeds)], root / f"class_{number % 2}" / f"photo_{number:07d}.jpg")


def measure(root):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, root],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=True,
    )
    return json.loads(ended.stdout.splitlines()[-1])


def test_a_hundred_times_the_samples_take_the_same_memory(tmp_path):
    seeds = sorted(write_images(tmp_path / "seeds", count=6).glob("*/*.jpg"))
    make_folder(tmp_path / "small", seeds, 1_000)
    make_folder(tmp_path / "large", seeds, 100_000)
    small, large = measure(tmp_path / "small"), measure(tmp_path / "large")
    print(small, large)
    assert (small["samples"], large["samples"]) == (1_000, 100_000)
    assert large["peak_bytes"] == pytest.approx(small["peak_bytes"], rel=0.05)
    # A start that read or listed what comes before would take a hundred times as long.
    assert large["start_seconds"] < 5 * small["start_seconds"]
