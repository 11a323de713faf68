"""Pictures of what `benchmarks/everything.sh` measured: step.png, accumulate.png and scale.png.

python benchmarks/plots.py build/bench/bench.json docs/images
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.figure import Figure

OURS, OTHERS = "#2563eb", "#9ca3af"


def step(found: list[dict[str, Any]]) -> Figure:
    """Images a second of each contestant, with the slowest and the fastest round."""
    figure, axes = pyplot.subplots(1, len(found), figsize=(6.5 * len(found), 5), squeeze=False)
    for place, one in zip(axes[0], found, strict=True):
        ran = sorted(
            (r for r in one["contestants"] if "images_per_second" in r),
            key=lambda r: r["images_per_second"]["median"],
        )
        speeds = [r["images_per_second"] for r in ran]
        middles = [s["median"] for s in speeds]
        spread = [[s["median"] - s["low"] for s in speeds], [s["high"] - s["median"] for s in speeds]]
        colors = [OURS if r["name"].startswith("distxcept") else OTHERS for r in ran]
        place.barh([r["name"] for r in ran], middles, xerr=spread, color=colors, ecolor="#374151")
        place.set_title(f"{one['setting']['image_size']} px, batch {one['setting']['batch']}")
        place.set_xlabel("images/s")
    return figure


def accumulate(found: dict[str, Any]) -> Figure:
    """Speed and peak memory against the number of micro steps."""
    figure, (speed, memory) = pyplot.subplots(1, 2, figsize=(11, 4))
    for prefix, color in (("distxcept", OURS), ("keras fit", OTHERS)):
        for place, rows, value in (
            (speed, found["contestants"], lambda row: row["images_per_second"]["median"]),
            (memory, found["memory"], lambda row: row["peak_bytes"] / 2**30),
        ):
            own = [r for r in rows if r["name"].startswith(f"{prefix}, k =") and "peak_bytes" in r]
            steps = [int(r["name"].split("=")[1]) for r in own]
            place.plot(steps, [value(r) for r in own], marker="o", color=color, label=prefix)
    for place, title in ((speed, "images/s"), (memory, "peak memory, GiB")):
        place.set_xscale("log", base=2)
        place.xaxis.set_major_formatter("{x:g}")
        place.set_ylim(0, 1.1 * place.get_ylim()[1])
        place.set_xlabel("micro steps in an update")
        place.set_title(title)
        place.legend(loc="lower right")
    return figure


def scale(found: dict[str, Any]) -> Figure:
    """Time of an update by ranks and batch."""
    figure, place = pyplot.subplots(figsize=(8, 4))
    rows = sorted(found["updates"], key=lambda row: (str(row["ranks"]), row["batch"]))
    names = [f"{row['ranks']} × {row['batch']}" for row in rows]
    place.bar(names, [row["seconds"] for row in rows], color=OURS)
    place.tick_params(axis="x", rotation=30)
    place.set_xlabel("ranks × batch of each")
    place.set_ylabel("seconds an update")
    return figure


DRAWINGS: dict[str, Callable[[Any], Figure]] = {"step": step, "accumulate": accumulate, "scale": scale}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measured", type=Path, help="bench.json")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    args = parser.parse_args()
    found = json.loads(args.measured.read_text())
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        if name in found:
            figure = draw(found[name])
            figure.tight_layout()
            figure.savefig(args.folder / f"{name}.png", dpi=110)
            print(args.folder / f"{name}.png")


if __name__ == "__main__":
    main()
