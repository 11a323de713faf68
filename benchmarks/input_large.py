"""How soon a large folder gives its first batch, and what its names take in memory: `benchmarks/input.py --large N`.

N file names in 1000 class folders named like those of ImageNet, hard links to one picture in each. Where the file system has
no hard links, a manifest with N lines; its listing is then one pass of Python's csv module.

    listing       a walk with os.scandir and nothing else, in the same process, right before
    first batch   from opening the source to the first batch, traced for the first time in its process
    memory        resident memory with the first batch there, less that of 1000 files in the same process before
"""

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CLASSES = 1000
BATCH, SIZE = 32, 299
TIME_AIM, BYTES_AIM = 1.5, 200
"""Most times the listing until the first batch; most bytes a file."""
SETTLE_SECONDS = 1.0
"""Until what is read ahead has filled its buffers."""


def run(count: int, rounds: int, picture: bytes) -> dict[str, Any]:
    from distxcept.prove.race.turns import say

    with tempfile.TemporaryDirectory(prefix="distxcept-input-") as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        began = time.perf_counter()
        make_source(small, CLASSES, picture)
        kind = make_source(large, count, picture)
        say(f"{count:,} names ({kind}) in {time.perf_counter() - began:.0f} s")
        starts = []
        for number in range(rounds):
            fresh, grown = ask(large), ask(small, large)
            starts.append({"large": fresh[0], "small": grown[0], "after_small": grown[1]})
            say(f"start {number + 1} of {rounds}: {json.dumps(starts[-1])}")
        say("removing the files")
    times = [one["large"] for one in starts]
    until_first = [one["open_seconds"] + one["batch_seconds"] for one in times]
    ratio = statistics.median(
        first / one["listing_seconds"] for first, one in zip(until_first, times, strict=True)
    )
    grown_by = [one["after_small"]["resident_bytes"] - one["small"]["resident_bytes"] for one in starts]
    each = statistics.median(grown_by) / (count - CLASSES)
    return {
        "files": count,
        "kind": kind,
        "starts": starts,
        "first_batch_against_listing": ratio,
        "bytes_a_file": each,
        "ratios": [
            {"what": "time", "speed": ratio, "aim": TIME_AIM, "met": ratio <= TIME_AIM},
            {"what": "memory", "speed": each, "aim": BYTES_AIM, "met": each <= BYTES_AIM},
        ],
    }


def make_source(folder: Path, count: int, picture: bytes) -> str:
    """How the names came about."""
    kind = "hard links"
    for number in range(CLASSES):
        name = f"n{1440764 + 13 * number:08d}"
        place = folder / name
        place.mkdir(parents=True)
        (place / f"{name}_0.JPEG").write_bytes(picture)
        if kind == "manifest":
            continue
        try:
            for other in range(1, count // CLASSES + (number < count % CLASSES)):
                os.link(place / f"{name}_0.JPEG", f"{place}/{name}_{other}.JPEG")
        except OSError:
            kind = "manifest"
    if kind == "manifest":
        names = sorted(path.name for path in folder.iterdir())
        with (folder / "manifest.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["path", "label"])
            writer.writerows((f"{n}/{n}_0.JPEG", n) for k in range(count) for n in [names[k % CLASSES]])
    return kind


def ask(*folders: Path) -> list[dict[str, float]]:
    """In a new process, one folder after the other."""
    environ = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, __file__, *map(str, folders)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: ended with {done.returncode}: {done.stderr[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def markdown(found: dict[str, Any], command: str) -> str:
    def median(which: str, key: str) -> float:
        return statistics.median(one[which][key] for one in found["starts"])

    seconds = [median("large", key) for key in ("listing_seconds", "open_seconds", "batch_seconds")]
    peaks = [one["after_small"]["peak_bytes"] - one["small"]["resident_bytes"] for one in found["starts"]]
    verdicts = ["met" if row["met"] else "MISSED" for row in found["ratios"]]
    each = found["bytes_a_file"]
    lines = [
        f"`{command}`: {found['files']:,} names ({found['kind']}), medians of {len(found['starts'])} starts.",
        *("", "| | |", "|---|---|"),
        f"| listing alone (os.scandir) | {seconds[0]:.2f} s |",
        f"| opening the source | {seconds[1]:.2f} s |",
        f"| from there to the first batch | {seconds[2]:.2f} s |",
        f"| both, with {CLASSES} files | {median('small', 'open_seconds') + median('small', 'batch_seconds'):.2f} s |",
        f"| until the first batch / listing | {found['first_batch_against_listing']:.2f} (aim: at most {TIME_AIM:g}, "
        f"{verdicts[0]}) |",
        f"| memory a file | {each:.0f} bytes (aim: at most {BYTES_AIM}, {verdicts[1]}) |",
        f"| the same, at the peak | {statistics.median(peaks) / found['files']:.0f} bytes |",
    ]
    return "\n".join(lines) + "\n"


# ---- in the process that opens the source ----


def child(folders: list[str]) -> list[dict[str, float]]:
    import tensorflow as tf

    import distxcept.data.dataset  # noqa: F401 - imports take their time before the clock starts
    from distxcept.data import op

    op.library()  # loaded once, whatever the size
    tf.constant(0.0) + 1.0  # the runtime has started
    kept: list[Any] = []
    return [start(folder, kept) for folder in folders]


def start(folder: str, kept: list[Any]) -> dict[str, float]:
    """What a start takes; what it made goes to `kept`, so that nothing is given back meanwhile."""
    from distxcept.batching import plan_batches
    from distxcept.config.schema import Augment, Crop, FolderSource, ManifestSource
    from distxcept.data.dataset import Input, Reading
    from distxcept.data.sources import open_source
    from distxcept.data.sources.base import MAX_PIXELS
    from distxcept.memory.limit import forget_peak, peak_bytes, process_bytes

    manifest = os.path.join(folder, "manifest.csv")
    is_manifest = os.path.exists(manifest)
    section: Any = FolderSource(kind="folder", path=folder)
    if is_manifest:
        section = ManifestSource(kind="manifest", path=manifest)
    listing_seconds = [listing(manifest if is_manifest else folder) for _ in range(2)][
        1
    ]  # the first one warms up
    forget_peak()
    began = time.perf_counter()
    source = open_source(section)
    opened = time.perf_counter()
    plan = plan_batches(samples=len(source), global_batch=BATCH, virtual_batch=BATCH, micro_batch=BATCH)
    augment = Augment(flip=True, crop=Crop(scale=(0.08, 1.0)))
    updates = Input(
        Reading(source=source, image_size=SIZE, seed=0, augment=augment, max_pixels=MAX_PIXELS),
        plan,
        range(1),
    )
    first = next(updates)
    came = time.perf_counter()
    time.sleep(SETTLE_SECONDS)
    kept += [source, updates, first]
    return {
        "listing_seconds": listing_seconds,
        "open_seconds": opened - began,
        "batch_seconds": came - opened,
        "resident_bytes": process_bytes("VmRSS"),
        "peak_bytes": peak_bytes(),
    }


def listing(place: str) -> float:
    def walk(folder: str) -> int:
        with os.scandir(folder) as entries:
            return sum(walk(entry.path) if entry.is_dir(follow_symlinks=False) else 1 for entry in entries)

    began = time.perf_counter()
    if os.path.isdir(place):
        walk(place)
    else:
        with open(place, newline="") as file:
            sum(1 for _ in csv.reader(file))
    return time.perf_counter() - began


if __name__ == "__main__":
    print(json.dumps(child(sys.argv[1:])))
