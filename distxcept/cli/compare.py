"""`distxcept compare`: results, configs, curves and weights of runs beside each other."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from distxcept.cli.arguments import number_between

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """\
examples:
  distxcept compare runs/one runs/two
  distxcept compare runs/one runs/two runs/three --html comparison.html    overlaid curves, in a browser
  distxcept compare runs/one runs/two --json --tolerance 1e-9

Every run is compared with the first. Two runs part at the first record of metrics.jsonl where loss, gradient norm,
accuracy, samples, learning rate or skipped updates differ by more than the tolerance; run.log_every=1 tells the very update.
The difference of weights is max|a − b| / max|a| of the tensor where it is largest, in the newest snapshots of one update.
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "compare runs: results, configs, curves, weights"
    parser = subparsers.add_parser(
        "compare",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="run folders, or names of runs below runs/; two or more"
    )
    parser.add_argument(
        "--tolerance", type=_tolerance, default=1e-3, help="relative difference that counts as parting (1e-3)"
    )
    parser.add_argument("--no-weights", action="store_true", help="leave the snapshots alone")
    parser.add_argument("--html", metavar="FILE", help="also write a page with overlaid curves")
    parser.add_argument("--json", action="store_true", help="as JSON on stdout")
    parser.set_defaults(run=run)


def _tolerance(text: str) -> float:
    return number_between(text, 0, 1e9, what="tolerance: a number from 0 on")


def run(args: argparse.Namespace) -> int:
    from distxcept.errors import ConfigError
    from distxcept.report.comparison import compare
    from distxcept.report.runs import open_run

    if len(args.runs) < 2:
        raise ConfigError("one run cannot be compared; give two or more")
    runs = [open_run(name) for name in args.runs]
    found = compare(runs, tolerance=args.tolerance, weights=not args.no_weights)
    if args.html:
        from distxcept.report.html import write_comparison

        write_comparison(args.html, runs, found)
    if args.json:
        print(json.dumps(found, indent=1))
        return 0
    from rich.console import Console

    _show(found, Console(highlight=False))
    return 0


ROWS = {
    "state": "state",
    "update": "updates",
    "best": "best",
    "best_update": "at update",
    "validation_loss": "validation loss",
    "validation_accuracy": "validation top-1",
    "validation_top5_accuracy": "validation top-5",
    "train_loss": "training loss",
    "train_accuracy": "training top-1",
    "images_per_second": "images/s",
    "seconds": "seconds",
    "peak_memory": "peak memory, bytes",
    "engine": "engine",
    "replicas": "replicas",
    "starts": "starts",
    "skipped_updates": "skipped updates",
    "bad_images": "bad images",
}


def _show(found: dict[str, Any], console: "Console") -> None:
    from rich.table import Table
    from rich.text import Text

    from distxcept.report.comparison import pair_lines
    from distxcept.report.plain_text import plain_line
    from distxcept.report.wording import number_text

    names = [entry["run"] for entry in found["runs"]]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", *names):
        table.add_column(Text(plain_line(name)), justify="right" if name else "left", overflow="fold")
    for field, title in ROWS.items():
        values = [entry[field] for entry in found["runs"]]
        if any(value is not None for value in values):
            table.add_row(title, *(Text(plain_line(number_text(value))) for value in values))
    if found["config"]:
        table.add_section()
        for key, values in found["config"].items():
            cells = (Text(plain_line(number_text(value))) for value in values)
            table.add_row(Text(plain_line(key)), *cells, style="cyan")
    console.print(table)
    if not found["config"]:
        console.print("their configs are the same")
    for pair in found["pairs"]:
        for line in pair_lines(pair):
            console.print(Text(plain_line(line)), soft_wrap=True)
