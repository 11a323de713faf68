"""`distxcept pack`: a folder, manifest or TensorFlow dataset into TFRecord shards with an index."""

import argparse
import sys
from typing import Any

from distxcept.cli.arguments import positive_number, whole_number

EXAMPLES = """\
examples:
  distxcept pack flowers/train packed/train
  distxcept pack flowers/validation packed/validation --classes-from packed/train
  distxcept pack photos.csv packed/photos --longest-side 512
  distxcept pack tfds:tf_flowers packed/flowers --split train

Use it with data.train={kind: records, path: packed/train}. Interrupted, the same command goes on.
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "pack images into a few large files that are fast to read in any order"
    parser = subparsers.add_parser(
        "pack", help=summary, description=f"{summary.capitalize()}.", epilog=EXAMPLES, parents=[common]
    )
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="folder of class folders, .csv file, or tfds:NAME",
    )
    parser.add_argument("dest", metavar="DEST", help="folder to make, or URL")
    parser.add_argument(
        "--longest-side", type=positive_number, metavar="PIXELS", help="shrink larger images to this"
    )
    parser.add_argument(
        "--quality", type=_quality, default=90, metavar="Q", help="JPEG quality of shrunk images (90)"
    )
    parser.add_argument(
        "--classes-from", metavar="FOLDER", help="packed or image folder whose classes fix the label numbers"
    )
    parser.add_argument(
        "--shard-size", default="256MiB", metavar="SIZE", help="size of a file, about (256MiB)"
    )
    parser.add_argument("--processes", type=positive_number, metavar="N", help="how many at once (all cores)")
    parser.add_argument("--split", default="train", help="of a TensorFlow dataset (train)")
    parser.add_argument("--data-dir", metavar="DIR", help="where TensorFlow datasets are prepared")
    parser.set_defaults(run=_run)


def _quality(text: str) -> int:
    value = whole_number(text)
    if not 1 <= value <= 95:
        raise argparse.ArgumentTypeError(f"{value} is not from 1 to 95")
    return value


def _run(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from distxcept.config.size import parse_size, show_size
    from distxcept.data.host import usable_cores
    from distxcept.data.pack import PackSettings, pack
    from distxcept.errors import ConfigError

    try:
        shard_bytes = parse_size(args.shard_size)
    except ValueError as error:
        raise ConfigError(f"--shard-size: {error}") from None
    settings = PackSettings(longest_side=args.longest_side, quality=args.quality, shard_bytes=shard_bytes)
    columns = (TextColumn("packing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = args.quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=hidden) as bar:
        task = bar.add_task("packing", total=None)
        packed = pack(
            _section(args),
            args.dest,
            settings=settings,
            class_names=_classes(args.classes_from),
            workers=args.processes or usable_cores(),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    for name, reason in packed.bad:
        print(f"bad: {name}: {reason}", file=sys.stderr)
    kept = f", {packed.kept_shards} of them from before" if packed.kept_shards else ""
    bad = f", {len(packed.bad)} bad (packed all the same)" if packed.bad else ""
    print(
        f"{args.dest}: {packed.samples} images in {packed.shards} files{kept}, {show_size(packed.bytes)}{bad}"
    )
    return 0


def _section(args: argparse.Namespace) -> Any:
    from distxcept.config.data import FolderSource, ManifestSource, TfdsSource
    from distxcept.data import files
    from distxcept.errors import ConfigError, DataError

    if args.source.startswith("tfds:"):
        name = args.source.removeprefix("tfds:")
        return TfdsSource(kind="tfds", name=name, split=args.split, data_dir=args.data_dir)
    try:
        if files.is_dir(args.source):
            return FolderSource(kind="folder", path=args.source)
    except OSError as error:
        raise DataError(files.problem(error)) from None
    if args.source.endswith(".csv"):
        return ManifestSource(kind="manifest", path=args.source)
    raise ConfigError(f"{args.source} is neither a folder nor a .csv file nor tfds:NAME")


def _classes(folder: str | None) -> tuple[str, ...] | None:
    from distxcept.config.data import FolderSource, RecordsSource
    from distxcept.data import files
    from distxcept.data.sources import open_source
    from distxcept.data.sources.records import PACKED_INDEX
    from distxcept.errors import DataError

    if folder is None:
        return None
    try:
        packed = files.is_file(files.join(folder, PACKED_INDEX))
    except OSError as error:
        raise DataError(f"--classes-from: {files.problem(error)}") from None
    if packed:
        return open_source(RecordsSource(kind="records", path=folder)).class_names
    return open_source(FolderSource(kind="folder", path=folder)).class_names
