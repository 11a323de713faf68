"""Seconds until the first update, and for a new form of update, on 1 and on more logical CPUs.

    python benchmarks/first_update.py                 1, 2, 4 and 8 devices, 3 starts of each, by turns
    python benchmarks/first_update.py --devices 1,8 --starts 1

Python traces the model and TensorFlow optimises its graph before an update can run. Both should cost about the same on
any number of devices. A new form is the short last update of an epoch. Two virtual batches a device keep the work small.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from distxcept.prove.race import table
from distxcept.prove.race.turns import say

BAR = 2.0
FULL_UPDATES = 3
VIRTUAL, EACH = 4, 2
PARTS = ("start", "first update", "later update", "short update")


def run(devices: int, *, image_size: int, width: float) -> dict[str, float]:
    """In a process of its own. Seconds of each part of one start."""
    command = [sys.executable, __file__, "--child", str(devices)]
    command += ["--image-size", str(image_size), "--width", str(width)]
    environ = {**os.environ, "BENCH_BEGAN": repr(time.time()), "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        sys.exit(f"{devices} devices: ended with {done.returncode}:\n{done.stderr[-2000:]}")


def child(devices: int, *, image_size: int, width: float) -> None:
    from distxcept.cli.main import main as distxcept
    from distxcept.training import update

    began = float(os.environ["BENCH_BEGAN"])
    seconds: list[float] = []
    real = update.Update.start

    def start(*arguments, **options):
        at = time.time()
        pending = real(*arguments, **options)
        pending.values.numpy()  # waits until the update is done
        if not seconds:
            seconds.append(at - began)
        seconds.append(time.time() - at)
        return pending

    update.Update.start = start  # type: ignore[method-assign]
    batch = devices * EACH * VIRTUAL
    samples = FULL_UPDATES * batch + batch - VIRTUAL // 2  # the last virtual batch is half padding
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(
            f"run: {{dir: {folder}, epochs: 1}}\n"
            f"model: {{image_size: {image_size}, width: {width}}}\n"
            f"data: {{train: {{kind: synthetic, samples: {samples}, classes: 3}}}}\n"
            f"batch: {{global: {batch}, virtual: {VIRTUAL}, micro: {VIRTUAL}}}\n"
            f"engine: {{devices: {devices}, threads: 1}}\n"
        )
        code = distxcept(["train", str(config), "-q"])
    if code or len(seconds) != FULL_UPDATES + 2:
        sys.exit(f"exit {code}, {len(seconds)} times")
    print(
        json.dumps(dict(zip(PARTS, [seconds[0], seconds[1], min(seconds[2:-1]), seconds[-1]], strict=True)))
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", default="1,2,4,8", help="numbers of devices; the first is compared with")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--image-size", type=int, default=71)
    parser.add_argument("--width", type=float, default=0.125)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    size = {"image_size": args.image_size, "width": args.width}
    if args.child:
        child(args.child, **size)
        return 0
    numbers = [int(number) for number in args.devices.split(",")]
    starts: dict[int, list[dict[str, float]]] = {number: [] for number in numbers}
    for turn in range(args.starts):
        for number in numbers:
            starts[number].append(run(number, **size))
            say(f"start {turn + 1}, {number} devices: {starts[number][-1]}")
    print(f"### Until the first update, {args.image_size} px, width {args.width}, seconds\n")
    print("| devices | " + " | ".join(PARTS) + " | all until the first | × | a new form | × |")
    print("|---|" + "---|" * (len(PARTS) + 4))
    rows = []
    for number in numbers:
        parts = [statistics.median(one[part] for one in starts[number]) for part in PARTS]
        rows.append((number, parts, parts[0] + parts[1], parts[3]))
    for number, parts, until_first, new_form in rows:
        times, form_times = until_first / rows[0][2], new_form / rows[0][3]
        cells = [f"{part:.1f}" for part in parts]
        cells += [f"{until_first:.1f}", f"{times:.2f}", f"{new_form:.1f}", f"{form_times:.2f}"]
        print(f"| {number} | " + " | ".join(cells) + " |")
    times, form_times = rows[-1][2] / rows[0][2], rows[-1][3] / rows[0][3]
    print(f"\n- first update on {numbers[-1]}: {times:.2f} × (bar {BAR}: {table.verdict(times <= BAR)})")
    print(
        f"- a new form on {numbers[-1]}: {form_times:.2f} × (bar {BAR}: {table.verdict(form_times <= BAR)})"
    )
    about = table.machine()
    print(f"\n{table.describe(about)}")
    if args.json:
        found = {"devices": {str(number): starts[number] for number in numbers}}
        Path(args.json).write_text(json.dumps({"machine": about, "first_update": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
