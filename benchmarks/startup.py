"""Seconds from the command to the end of the first update, and where they go; beside the loop that people write.

    python benchmarks/startup.py                           2000 images, 128 px, batch 16; 3 starts of each, by turns
    python benchmarks/startup.py --probe memory.limit=3GiB     with trials of memory plans, of which nothing is known yet

Both read the same folder of JPEG files. Each start is a new process, the files are in the page cache for both.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from distxcept.prove.race import table
from distxcept.prove.race.contestants import STOCK
from distxcept.prove.race.turns import Contestant, say

HERE = Path(__file__).parent / "contestants"
BAR = 1.15


def make_images(folder: Path, images: int, classes: int = 10) -> None:
    """One picture many times: what is measured is finding files, not their content."""
    import numpy as np
    from PIL import Image

    first = folder / "first.jpg"
    pixels = np.random.default_rng(0).integers(0, 256, (375, 500, 3), np.uint8)
    Image.fromarray(pixels).resize((500, 375)).save(first)
    for number in range(images):
        place = folder / "images" / f"class{number % classes}"
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(first, place / f"{number:06d}.jpg")


def start(program: str, *arguments: str, environ: dict[str, str]) -> dict[str, float]:
    """The stages of one start, in seconds, as the program tells them; `all` is from the command to the first update."""
    contestant = Contestant(program, (sys.executable, str(HERE / program), *arguments), STOCK)
    began = time.time()
    done = subprocess.run(
        contestant.command,
        env=contestant.environment(os.environ) | {**environ, "BENCH_BEGAN": repr(began)},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        sys.exit(f"{program} ended with {done.returncode}:\n{done.stderr[-2000:]}")


def medians(starts: list[dict[str, float]]) -> dict[str, float]:
    return {stage: statistics.median(one.get(stage, 0.0) for one in starts) for stage in starts[0]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of our config")
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--probe", action="store_true", help="forget what earlier trials have found")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    about = table.machine()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        make_images(Path(folder), args.images)
        data, size = str(Path(folder) / "images"), (args.image_size, args.batch, args.width)
        for number in range(args.starts):
            cache = {"XDG_CACHE_HOME": str(Path(folder) / f"cache-{number}")} if args.probe else {}
            runs = str(Path(folder) / f"runs-{number}")
            ours.append(start("start_ours.py", data, runs, *map(str, size), *args.overrides, environ=cache))
            theirs.append(start("start_loop.py", data, *map(str, size), environ={}))
            say(f"start {number + 1}: ours {ours[-1]['all']:.1f} s, the loop {theirs[-1]['all']:.1f} s")
    ratios = [one["all"] / other["all"] for one, other in zip(ours, theirs, strict=True)]
    mine, other = medians(ours), medians(theirs)
    print(
        f"### From the command to the first update, {args.image_size} px, batch {args.batch}, {args.images} images\n"
    )
    print("| | distxcept train, s | hand-written loop, s |\n|---|---|---|")
    for stage in {**mine, **other}:
        print(f"| {stage} | {mine.get(stage, 0):.2f} | {other.get(stage, 0):.2f} |")
    ratio = statistics.median(ratios)
    spread = f"{min(ratios):.2f} … {max(ratios):.2f}"
    print(f"\n- {ratio:.2f} × the hand-written loop ({spread}; bar {BAR}: {table.verdict(ratio <= BAR)})")
    print(f"\n{table.describe(about)}")
    if args.json:
        found = {"ours": ours, "loop": theirs, "ratios": ratios, "ratio": ratio}
        Path(args.json).write_text(json.dumps({"machine": about, "startup": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
