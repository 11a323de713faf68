"""Input pipelines side by side: JPEG files of 500 × 375 to batches of 32 at 299 px, images a second on all cores.

    python benchmarks/input.py                             all pipelines, by turns: some minutes
    python benchmarks/input.py --quality 92 --rounds 15
    python benchmarks/input.py --large 1300000             instead: how soon a large folder gives its first batch

Ours always includes random resized crop and flip. The two TensorFlow pipelines that it is compared with are as they are
commonly written, without any augmentation: less work, so the stricter comparison. The same two with augmentation stand
beside them, and Pillow does the same crop and flip.

Every pipeline is a process of its own and all read the same files. One works at a time, the others are stopped; a ratio is
the median over the rounds, so that other work on the machine touches all alike. Processor time an image stands beside
it: on a busy machine it says more than the clock.

The pictures are noise with the falling spectrum of photographs, and grain: about 30 kB at quality 80, 63 kB at 92.
"""

import argparse
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import input_large  # noqa: E402 - this checkout, not what is installed
from distxcept.config.schema import FolderSource  # noqa: E402
from distxcept.data.pack import pack  # noqa: E402
from distxcept.prove.race import table  # noqa: E402
from distxcept.prove.race.contestants import STOCK  # noqa: E402
from distxcept.prove.race.setting import Setting  # noqa: E402
from distxcept.prove.race.turns import Contestant, Result, Spread, say, take_turns  # noqa: E402

CHILD = Path(__file__).with_name("contestants") / "input_pipeline.py"
RESULTS = Path(__file__).with_name("results")
SETTING = Setting(image_size=299, batch=32)
EARLIER = "e577e91"
"""The commit whose pipeline, threads of Python, the present one is compared with."""
NAMES = {
    "ours": "ours, folder",
    "plainly": "ours, folder, without the compiled operation",
    "records": "ours, records",
    "earlier": f"ours at {EARLIER}, folder",
    "plain": "plain tf.data",
    "plain-crop": "plain tf.data, crop and flip",
    "directory": "image_dataset_from_directory",
    "directory-crop": "the same, crop and flip",
    "pillow": "Pillow, crop and flip",
    "decode": "decode_jpeg alone, fast DCT",
}
AIMS = {
    ("ours", "earlier"): 1.15,
    ("ours", "plain"): 2.5,
    ("ours", "decode"): 1.0,
    ("plainly", "plain"): 1.3,
    ("records", "ours"): 1.0,
}
"""Least ratio of speeds."""
SHOWN = [*AIMS, *(("ours", other) for other in ("plain-crop", "directory", "directory-crop", "pillow"))]


def write_images(folder: Path, count: int, quality: int) -> float:
    """Returns the mean size in kB."""

    def one(number: int) -> int:
        data = picture(number, quality)
        target = folder / f"class_{number % 2}" / f"{number:05d}.jpg"
        target.write_bytes(data)
        return len(data)

    for label in range(2):
        (folder / f"class_{label}").mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        return statistics.mean(pool.map(one, range(count))) / 1000


def picture(number: int, quality: int) -> bytes:
    """Structure at all scales, stronger the coarser it is, and fine grain."""
    draw = np.random.default_rng(number).standard_normal
    pixels = np.zeros((375, 500, 3), np.float32)
    for scale in (2, 4, 8, 16, 32, 64, 128):
        coarse = draw((3, 375 // scale + 2, 500 // scale + 2), np.float32)
        layers = [Image.fromarray(c).resize((500, 375), Image.Resampling.BICUBIC) for c in coarse]
        pixels += np.stack([np.asarray(layer) for layer in layers], -1) * scale**0.8
    pixels = 128 + 45 * pixels / pixels.std() + draw(pixels.shape, np.float32) * 7
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=quality)
    return file.getvalue()


@contextmanager
def earlier_checkout(place: Path) -> Iterator[str | None]:
    """A worktree of that commit with its kernel compiled; None where it cannot be had, which is told."""

    def run(*command: str) -> None:
        # In a session of its own: Ctrl-C is a matter of this process alone.
        subprocess.run(command, check=True, capture_output=True, text=True, start_new_session=True)

    tree = ("git", "-C", str(ROOT), "worktree")
    try:
        try:
            run(*tree, "add", "--detach", "--quiet", str(place), EARLIER)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
            say(f"left out: {NAMES['earlier']}: {reason}")
            yield None
            return
        run(sys.executable, str(place / "distxcept" / "data" / "scaling" / "build.py"))
        yield str(place)
    finally:
        if place.exists():
            run(*tree, "remove", "--force", str(place))


def contestants(home: Path, earlier: str | None) -> dict[str, Contestant]:
    """By the words of NAMES; the first is the reference."""

    def child(word: str, name: str, root: str = str(ROOT), **environ: str) -> Contestant:
        command = (sys.executable, str(CHILD), name, root, str(home / "images"), str(home / "packed"))
        changed = {**STOCK, "DISTXCEPT_OP": None, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": root, **environ}
        return Contestant(NAMES[word], command, changed)

    others = ("plain", "plain-crop", "directory", "directory-crop", "pillow", "decode")
    return {
        "ours": child("ours", "ours-folder"),
        "plainly": child("plainly", "ours-folder", DISTXCEPT_OP="off"),
        "records": child("records", "ours-records"),
        **({"earlier": child("earlier", "earlier", earlier)} if earlier else {}),
        **{word: child(word, word) for word in others},
    }


def race(images: int, quality: int, seconds: float, rounds: int) -> tuple[float, dict[str, Result]]:
    """Mean size of a file in kB, and the results by word."""
    with tempfile.TemporaryDirectory(prefix="distxcept-input-") as folder:
        home = Path(folder)
        kilobytes = write_images(home / "images", images, quality)
        pack(FolderSource(kind="folder", path=str(home / "images")), home / "packed", workers=1)
        with earlier_checkout(home / "earlier") as earlier:
            found = contestants(home, earlier)
            results = take_turns(
                list(found.values()), lambda _: SETTING, rounds=rounds, turn_seconds=seconds, notice=say
            )
    return kilobytes, dict(zip(found, results, strict=True))


def summary(kilobytes: float, results: dict[str, Result]) -> dict[str, Any]:
    """All figures, as --json prints them."""
    ran = {word: result for word, result in results.items() if result.turns and not result.failure}

    def cost(result: Result) -> float:
        return statistics.median(
            1000 * turn.facts["processor_seconds"] / turn.images for turn in result.turns
        )

    def ratio(one: str, other: str) -> Spread:
        pairs = zip(ran[one].ratios, ran[other].ratios, strict=False)
        return Spread.of([mine / theirs for mine, theirs in pairs])

    compared = []
    for one, other in SHOWN:
        aim = AIMS.get((one, other))
        row: dict[str, Any] = {"one": NAMES[one], "other": NAMES[other], "aim": aim}
        row |= {"speed": None, "met": None}
        if one in ran and other in ran:
            spread = ratio(one, other)
            row |= {"speed": vars(spread), "processor_time": cost(ran[other]) / cost(ran[one])}
            row["met"] = None if aim is None else spread.median >= aim
        compared.append(row)
    return {
        "mean_file_kB": kilobytes,
        "images_per_second": {NAMES[word]: vars(result.speed) for word, result in ran.items()},
        "processor_ms_per_image": {NAMES[word]: cost(result) for word, result in ran.items()},
        "compiled": {
            NAMES[word]: one.start["compiled"] for word, one in ran.items() if "compiled" in one.start
        },
        "failures": {one.contestant.name: one.failure for one in results.values() if one.failure},
        "ratios": compared,
    }


def markdown(found: dict[str, Any], about: dict[str, Any], command: str) -> str:
    lines = [
        f"`{command}`: JPEG of {found['mean_file_kB']:.1f} kB on average to 299 px, batches of 32.",
        *("", "| | images/s, median (least … most) | processor time an image |", "|---|---|---|"),
    ]
    for name, speed in found["images_per_second"].items():
        note = "" if found["compiled"].get(name, True) or "without" in name else " (NOT COMPILED)"
        lines.append(f"| {name}{note} | {show(speed, 0)} | {found['processor_ms_per_image'][name]:.2f} ms |")
    lines += [f"| {name} | failed: {reason} | |" for name, reason in found["failures"].items()]
    lines += [
        "",
        "| speed of … against … | median (least … most) | processor time | aim | |",
        "|---|---|---|---|---|",
    ]
    for row in found["ratios"]:
        aim = "" if row["aim"] is None else f"{row['aim']:g}"
        if row["speed"] is None:
            lines.append(f"| {row['one']} / {row['other']} | – | | {aim} | not run |")
            continue
        met = "" if row["met"] is None else "met" if row["met"] else "MISSED"
        lines.append(
            f"| {row['one']} / {row['other']} | {show(row['speed'], 2)} | {row['processor_time']:.2f} | {aim} | {met} |"
        )
    return "\n".join([*lines, "", describe(about), ""])


def show(spread: dict[str, float], digits: int) -> str:
    middle, low, high = (f"{spread[key]:,.{digits}f}" for key in ("median", "low", "high"))
    return f"{middle} ({low} … {high})"


def describe(about: dict[str, Any]) -> str:
    """Machine, date and commit, and whether other work may have disturbed."""
    load = f"load {os.getloadavg()[0]:.1f} at the end"
    return (
        table.describe({**about, "commit": f"{about['commit'] or 'unknown'}{about['changes']}"})
        + f"; {load}."
    )


def uncommitted() -> str:
    """What to say beside the commit."""
    command = ["git", "--no-optional-locks", "status", "--porcelain", "distxcept", "benchmarks"]
    command.append(f":!benchmarks/{RESULTS.name}")
    with suppress(OSError):
        if subprocess.run(command, cwd=ROOT, capture_output=True, check=False).stdout:
            return " and changes since"
    return ""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quality", type=int, default=80, help="of the JPEG files (80)")
    parser.add_argument("--images", type=int, default=320, help="how many there are (320)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn, about (2)")
    parser.add_argument("--rounds", type=int, help="turns of each (9); of --large: starts (3)")
    parser.add_argument(
        "--large", type=int, metavar="N", help="measure the start with N files (1300000) instead"
    )
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--save", action="store_true", help=f"also write the table to {RESULTS.name}/")
    args = parser.parse_args(argv)
    if not 1 <= args.quality <= 95:
        parser.error(f"--quality {args.quality}: from 1 to 95")
    if args.images < SETTING.batch or args.images % SETTING.batch:
        parser.error(f"--images {args.images}: a multiple of {SETTING.batch}, so that all batches are full")
    args.rounds = (9 if args.large is None else 3) if args.rounds is None else args.rounds
    if args.rounds < 1 or not 0 < args.seconds < 3600:
        parser.error("--rounds is at least 1, --seconds more than 0 and less than 3600")
    if args.large is not None and args.large < 2 * input_large.CLASSES:
        parser.error(f"--large {args.large}: at least {2 * input_large.CLASSES}, two files for each class")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleaned up
    about = {**table.machine(), "changes": uncommitted()}
    shown = " ".join(["python benchmarks/input.py", *(sys.argv[1:] if argv is None else argv)])
    shown = shown.replace(" --save", "").replace(" --json", "")
    try:
        if args.large is not None:
            title, name = "A large folder", "input_large.md"
            found = input_large.run(args.large, args.rounds, picture(0, args.quality))
            text = input_large.markdown(found, shown) + f"\n{describe(about)}\n"
        else:
            title, name = "Input pipelines", "input.md"
            found = summary(*race(args.images, args.quality, args.seconds, args.rounds))
            text = markdown(found, about, shown)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    print(json.dumps({"machine": about, "input": found}, indent=1) if args.json else text)
    if args.save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / name).write_text(f"# {title}\n\n{text}")
    failed = bool(found.get("failures")) or any(row["met"] is False for row in found["ratios"])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
