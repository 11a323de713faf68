"""How soon a large folder gives its first batch, and what its names take in memory: `benchmarks/input.py --large N`.

N file names in 1000 class folders named like those of ImageNet, hard links to one picture in each. Where the file system has
no hard links, a manifest with N lines; its listing is then one pass of Python's csv module.

    listing       a walk with os.scandir and nothing else, in the same process, right before
    first batch   from opening the source to the first batch, traced for the first time in its process
    memory        resident memory with the first batch there, less that of a process with 1000 files
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
CLOCKS = ("seconds", "processor_seconds")
TIME_AIM, BYTES_AIM = 1.5, 200
"""Most times the listing until the first batch; most bytes a file."""
LEAST_JUDGED = 200_000
"""With fewer files it is mostly what does not depend on them, and proves nothing."""
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
            starts.append({"large": ask(large), "small": ask(small)})
            say(f"start {number + 1} of {rounds}: {json.dumps(starts[-1])}")
        say("removing the files")
    ratios = [times_of_listing(starts, clock) for clock in CLOCKS]
    each = bytes_a_file(starts, "resident_bytes", count)
    judged = count >= LEAST_JUDGED
    return {
        "files": count,
        "kind": kind,
        "starts": starts,
        "first_batch_against_listing": dict(zip(CLOCKS, ratios, strict=True)),
        "bytes_a_file": each,
        "bytes_a_file_at_the_peak": bytes_a_file(starts, "peak_bytes", count),
        "ratios": [
            {"what": "time", "aim": TIME_AIM, "met": ratios[0]["all"] <= TIME_AIM if judged else None},
            {"what": "memory", "aim": BYTES_AIM, "met": each <= BYTES_AIM if judged else None},
        ],
    }


def times_of_listing(starts: list[dict[str, Any]], clock: str) -> dict[str, float]:
    """Until the first batch: all of it, and what is more than with few files."""

    def until_first(which: str, one: dict[str, Any]) -> float:
        return one[which]["open"][clock] + one[which]["batch"][clock]

    base = statistics.median(until_first("small", one) for one in starts)
    pairs = [(until_first("large", one), one["large"]["listing"][clock]) for one in starts]
    return {
        "all": statistics.median(first / listed for first, listed in pairs),
        "more": statistics.median((first - base) / listed for first, listed in pairs),
    }


def bytes_a_file(starts: list[dict[str, Any]], key: str, count: int) -> float:
    grown = statistics.median(one["large"][key] - one["small"][key] for one in starts)
    return grown / (count - CLASSES)


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


def ask(folder: Path) -> dict[str, Any]:
    """One start in a new process."""
    environ = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, __file__, str(folder)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: ended with {done.returncode}: {done.stderr[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def markdown(found: dict[str, Any], command: str) -> str:
    def cells(title: str, which: str, *parts: str) -> str:
        each = [
            statistics.median(sum(one[which][part][clock] for part in parts) for one in found["starts"])
            for clock in CLOCKS
        ]
        return f"| {title} | {each[0]:.2f} s | {each[1]:.2f} s |"

    said = {True: "met", False: "MISSED", None: "too few files to tell"}
    time_said, bytes_said = (f"(aim: at most {row['aim']:g}, {said[row['met']]})" for row in found["ratios"])
    clock, processor = (found["first_batch_against_listing"][name] for name in CLOCKS)
    lines = [
        f"`{command}`: {found['files']:,} names ({found['kind']}), medians of {len(found['starts'])} starts.",
        *("", "| | time | processor time |", "|---|---|---|"),
        cells("listing alone (os.scandir)", "large", "listing"),
        cells("opening the source", "large", "open"),
        cells("from there to the first batch", "large", "batch"),
        cells(f"both, with {CLASSES} files", "small", "open", "batch"),
        f"| until the first batch / listing | {clock['all']:.2f} {time_said} | {processor['all']:.2f} |",
        f"| the same without what {CLASSES} files take | {clock['more']:.2f} | {processor['more']:.2f} |",
        "",
        f"Memory: {found['bytes_a_file']:.0f} bytes a file {bytes_said}, "
        f"{found['bytes_a_file_at_the_peak']:.0f} at the peak.",
    ]
    return "\n".join(lines) + "\n"


# ---- in the process that opens the source ----


class Watch:
    """Time since the last question, by the clock and of the processor."""

    def __init__(self) -> None:
        self.ask()

    def ask(self) -> dict[str, float]:
        before, self._at = getattr(self, "_at", (0.0, 0.0)), (time.perf_counter(), time.process_time())
        return dict(
            zip(CLOCKS, (now - then for now, then in zip(self._at, before, strict=True)), strict=True)
        )


def start(folder: str) -> dict[str, Any]:
    import tensorflow as tf

    from distxcept.batching import plan_batches
    from distxcept.config.schema import Augment, Crop, FolderSource, ManifestSource
    from distxcept.data import op
    from distxcept.data.dataset import Input, Reading
    from distxcept.data.sources import open_source
    from distxcept.data.sources.base import MAX_PIXELS
    from distxcept.memory.limit import forget_peak, peak_bytes, process_bytes

    manifest = os.path.join(folder, "manifest.csv")
    is_manifest = os.path.exists(manifest)
    section: Any = FolderSource(kind="folder", path=folder)
    if is_manifest:
        section = ManifestSource(kind="manifest", path=manifest)
    op.library()  # it is loaded once, whatever the size
    tf.constant(0.0) + 1.0  # now the runtime has started
    place = manifest if is_manifest else folder
    listing(place)  # warms up
    watch, found = Watch(), {}
    listing(place)
    found["listing"] = watch.ask()
    forget_peak()
    source = open_source(section)
    found["open"] = watch.ask()
    plan = plan_batches(samples=len(source), global_batch=BATCH, virtual_batch=BATCH, micro_batch=BATCH)
    augment = Augment(flip=True, crop=Crop(scale=(0.08, 1.0)))
    reading = Reading(source=source, image_size=SIZE, seed=0, augment=augment, max_pixels=MAX_PIXELS)
    with Input(reading, plan, range(1)) as updates:
        next(updates)
        found["batch"] = watch.ask()
        time.sleep(SETTLE_SECONDS)
        return {**found, "resident_bytes": process_bytes("VmRSS"), "peak_bytes": peak_bytes()}


def listing(place: str) -> None:
    def walk(folder: str) -> int:
        with os.scandir(folder) as entries:
            return sum(walk(entry.path) if entry.is_dir(follow_symlinks=False) else 1 for entry in entries)

    if os.path.isdir(place):
        walk(place)
    else:
        with open(place, newline="") as file:
            sum(1 for _ in csv.reader(file))


if __name__ == "__main__":
    print(json.dumps(start(sys.argv[1])))
