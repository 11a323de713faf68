"""`distxcept runs`: which runs there are, how they stand, and how good they are."""

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distxcept.report.runs import Run

EXAMPLES = """\
examples:
  distxcept runs                       those below runs/, newest first
  distxcept runs /scratch/me/runs --state failed
  distxcept runs --json

states: new · running · done · stopped (on request: the same command goes on) · failed ·
lost (its process is gone without a word)
"""
STYLES = {"running": "green", "failed": "red", "lost": "red", "stopped": "yellow"}


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "list runs with their state, best result and age"
    parser = subparsers.add_parser(
        "runs",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    parser.add_argument("folder", metavar="DIR", nargs="?", default="runs", help="where to look (runs)")
    parser.add_argument(
        "--state", choices=("new", "running", "done", "stopped", "failed", "lost"), help="only these"
    )
    parser.add_argument("--json", action="store_true", help="as JSON on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from distxcept.errors import ConfigError
    from distxcept.report.runs import find_runs

    folder = Path(args.folder).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}; name the one that holds the runs (run.dir)")
    now = time.time()
    rows = [_row(one, now) for one in find_runs(folder)]
    rows = [row for row in rows if args.state in (None, row["state"])]
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        _show(rows, str(folder), quiet=args.quiet)
    return 0


def _row(run: "Run", now: float) -> dict[str, Any]:
    return {
        "run": str(run.folder),
        "state": run.state(now),
        "update": run.update,
        "total_updates": run.started.get("total_updates"),
        "best_metric": run.best_metric if run.best_value is not None else None,
        "best": run.best_value,
        "train_loss": run.train[-1].get("loss") if run.train else None,
        "age_seconds": round(max(0.0, now - run.last_sign), 1),
        "failure": run.failure,
    }


def _show(rows: list[dict[str, Any]], folder: str, *, quiet: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from distxcept.report.plain_text import plain_line
    from distxcept.report.wording import metric_text, show_age

    console = Console(highlight=False)
    if not rows:
        if not quiet:
            Console(stderr=True, highlight=False).print(f"no runs in {folder}", markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "state", "updates", "best", "age"):
        table.add_column(name, justify="right" if name in ("updates", "age") else "left", overflow="fold")
    for row in rows:
        total = f"/{row['total_updates']}" if row["total_updates"] else ""
        table.add_row(
            Text(plain_line(row["run"])),
            Text(row["state"], style=STYLES.get(row["state"], "")),
            f"{row['update']}{total}",
            metric_text(row["best_metric"], row["best"]),
            show_age(row["age_seconds"]),
        )
    console.print(table)
    for row in rows:
        if row["failure"]:
            console.print(Text(plain_line(f"{row['run']}: {row['failure']}"), style="red"))
