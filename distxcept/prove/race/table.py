"""Results of the turns as a Markdown table, and for other programs."""

import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distxcept import __version__
from distxcept.cluster.machine import package_versions, processor_name
from distxcept.prove.race.setting import Setting
from distxcept.prove.race.turns import Result, Spread

PACKAGES = ("tensorflow", "keras", "horovod", "numpy")


def markdown(results: Sequence[Result], caption: str) -> str:
    """Ratios are to the first row."""
    reference = results[0].contestant.name
    lines = [
        f"### {caption}",
        "",
        f"| | images/s, median (least … most) | × {reference} | peak memory | |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        about = result.contestant.about
        if result.failure or not result.turns:
            lines.append(f"| {result.contestant.name} | – | – | – | {result.failure or 'not run'} |")
            continue
        ratio = _spread(result.ratio) if result.ratios else "–"  # who ran alone has none
        lines.append(
            f"| {result.contestant.name} | {_spread(result.speed)} | {ratio} | "
            f"{result.peak_bytes / 2**20:,.0f} MiB | {about} |"
        )
    return "\n".join(lines)


def verdict(reached: bool) -> str:
    """What the programs say of a bar."""
    return "reached" if reached else "MISSED"


def as_json(results: Sequence[Result], setting: Setting) -> dict[str, Any]:
    return {
        "setting": {**vars(setting)},
        "contestants": [
            {
                "name": result.contestant.name,
                "about": result.contestant.about,
                "failure": result.failure or None,
                "start": result.start,
                **(
                    {
                        "images_per_second": vars(result.speed),
                        "ratio": vars(result.ratio) if result.ratios else None,
                        "peak_bytes": result.peak_bytes,
                        "rounds": [
                            {
                                "steps": turn.steps,
                                "seconds": turn.seconds,
                                "peak_bytes": turn.peak_bytes,
                                **turn.facts,
                            }
                            for turn in result.turns
                        ],
                    }
                    if result.turns
                    else {}
                ),
            }
            for result in results
        ],
    }


def machine() -> dict[str, Any]:
    """Where and with what it was measured."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "distxcept": __version__,
        "commit": commit(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "processor": processor_name(),
        "python": platform.python_version(),
        **package_versions(PACKAGES),
    }


def describe(about: dict[str, Any]) -> str:
    return (
        f"{about['cores']} cores of {about['processor']}, load {about['load']:.1f} at the start; "
        f"TensorFlow {about['tensorflow']}, Keras {about['keras']}; {about['date']}, commit {about['commit'] or 'unknown'}"
    )


def commit() -> str | None:
    """Of the source that runs, where it is a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
    except OSError:
        return None


def _spread(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.low:.2f} … {spread.high:.2f})"
