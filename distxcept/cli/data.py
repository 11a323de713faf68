"""`distxcept data check`: what the data of a config holds, and what is wrong with it."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from distxcept.cli.arguments import add_config_arguments

if TYPE_CHECKING:
    from distxcept.data.check import SplitReport

EXAMPLES = """\
examples:
  distxcept data check configs/flowers.yaml
  distxcept data check configs/flowers.yaml --picture flowers.png
  distxcept data check configs/flowers.yaml --json > report.json

Every image is decoded once. Exit 3 if more of them are bad than data.max_bad_fraction allows.
"""
_LISTED = 10


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    parser = subparsers.add_parser(
        "data",
        help="look at the data of a config: classes, sizes, bad files, duplicates",
        description="Look at the data of a config.",
        epilog=EXAMPLES,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    summary = "count classes, sizes and formats; find bad files, duplicates and leaks into validation"
    check = actions.add_parser(
        "check", help=summary, description=f"{summary.capitalize()}.", epilog=EXAMPLES, parents=[common]
    )
    add_config_arguments(check)
    check.add_argument("--json", action="store_true", help="the whole report as JSON on stdout")
    check.add_argument(
        "--picture", metavar="FILE", help="write samples and class counts of the training data to a .png"
    )
    check.set_defaults(run=_check)


def _check(args: argparse.Namespace) -> int:
    import os

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from pathlib import Path

    from distxcept.config.load import load_config
    from distxcept.data import check_picture
    from distxcept.data.check import shared_images
    from distxcept.data.sources import open_sources

    data = load_config(args.config, args.overrides).data
    train, validation = open_sources(data)
    splits = {"train": train, **({"validation": validation} if validation is not None else {})}
    reports = {name: _run(name, source, data.max_pixels, args) for name, source in splits.items()}
    shared = shared_images(*reports.values()) if validation is not None else None
    if args.picture:
        title = f"training data: {len(train)} images, {len(train.class_names)} classes"
        check_picture.draw(train, title, Path(args.picture), max_pixels=data.max_pixels)
    too_bad = any(len(r.bad) > data.max_bad_fraction * len(splits[n]) for n, r in reports.items())
    if args.json:
        found = {name: report.to_json() for name, report in reports.items()}
        print(json.dumps({**found, "shared_by_train_and_validation": shared}, indent=1, ensure_ascii=False))
    else:
        for report in reports.values():
            _print(report)
        if shared:
            print(f"WARNING: {shared} validation images are in the training data too, pixel for pixel")
        if too_bad:
            print(f"too many bad images: data.max_bad_fraction is {data.max_bad_fraction}")
    return 3 if too_bad else 0


def _run(name: str, source: Any, max_pixels: int, args: argparse.Namespace) -> "SplitReport":
    from rich.console import Console
    from rich.progress import Progress

    from distxcept.data.check import check_split
    from distxcept.data.host import usable_cores

    hidden = args.quiet or not sys.stderr.isatty()
    with Progress(console=Console(stderr=True), disable=hidden, transient=True) as progress:
        task = progress.add_task(f"looking at {name}", total=len(source))
        return check_split(
            name,
            source,
            max_pixels=max_pixels,
            workers=usable_cores(),
            progress=lambda done: progress.update(task, completed=done),
        )


def _print(report: "SplitReport") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    summary = report.to_json()
    print(f"{report.name}: {report.samples} images, {len(report.class_names)} classes")
    table = Table()
    table.add_column("class")
    table.add_column("images", justify="right")
    table.add_column("share", justify="right")
    for name, count in summary["classes"].items():
        table.add_row(escape(name), str(count), f"{count / max(1, report.samples):.1%}")
    Console().print(table)
    for key in ("width", "height"):
        if summary[key]:
            low, middle, high = (summary[key][part] for part in ("min", "median", "max"))
            print(f"  {key}: {low} to {high}, median {middle:g}")
    print(
        f"  formats: {', '.join(f'{kind} {count}' for kind, count in summary['formats'].items()) or 'none'}"
    )
    print(f"  largest class / smallest: {report.imbalance:.1f}")
    _print_list(f"{len(report.bad)} bad", [f"{name}: {reason}" for name, reason in report.bad])
    groups = [" = ".join(group[:4]) for group in report.duplicates]
    labels = f", {report.relabelled} of them with different labels" if report.relabelled else ""
    _print_list(f"{len(groups)} groups of equal images{labels}", groups)


def _print_list(title: str, lines: list[str]) -> None:
    print(f"  {title}{':' if lines else ''}")
    for line in lines[:_LISTED]:
        print(f"    {line}")
    if len(lines) > _LISTED:
        print(f"    … and {len(lines) - _LISTED} more (--json lists all)")
