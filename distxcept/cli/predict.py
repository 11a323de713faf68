"""`distxcept predict`: the classes of images that have no label."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from distxcept.cli.arguments import SNAPSHOT_HELP, positive_number

if TYPE_CHECKING:
    from distxcept.training.predict import Prediction

EXAMPLES = """\
examples:
  distxcept predict runs/quickstart photo.jpg more/      files, and all images below folders
  distxcept predict runs/quickstart:best photos --top 3 --format csv > answers.csv
  find /data -name '*.jpg' -print0 | distxcept predict runs/quickstart - --null --format jsonl

A file that cannot be read is told on stderr (and as `error` in csv and jsonl) and passed over; the command then ends with
exit code 3, with all other predictions written. Results come as the names come, in their order.
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "tell the classes of images"
    parser = subparsers.add_parser(
        "predict",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    parser.add_argument("snapshot", metavar="RUN", help=SNAPSHOT_HELP)
    parser.add_argument(
        "images", metavar="IMAGES", nargs="+", help="files, folders, or - for a list on stdin"
    )
    parser.add_argument(
        "--top", type=positive_number, default=1, metavar="K", help="classes of each image (1)"
    )
    parser.add_argument(
        "--format",
        choices=("table", "csv", "jsonl"),
        default="table",
        help="table, csv or jsonl (JSON lines)",
    )
    parser.add_argument(
        "--batch", type=positive_number, metavar="N", help="images at once (the run's micro batch)"
    )
    parser.add_argument("--null", action="store_true", help="names on stdin end with a zero byte, not a line")
    parser.add_argument("--config", metavar="FILE", help="instead of the run's own config.yaml")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import os

    from distxcept.cluster import detect
    from distxcept.launch.environment import prepare_environment
    from distxcept.report.predictions_text import WRITERS
    from distxcept.training.trained import find_trained

    trained = find_trained(args.snapshot, config_file=args.config)
    placement = detect(os.environ)
    prepare_environment(trained.config, verbose=args.verbose)

    from distxcept.cli.startup import chatter_aside

    with chatter_aside(args.verbose):
        from distxcept.data.loose_files import find_files
        from distxcept.training.predict import Predictor, one_device

        predictor = Predictor(trained, one_device(trained.config.engine, placement))
    for reason in trained.passed_over if not args.quiet else ():
        print(f"not used: {reason}", file=sys.stderr)
    batch_size = args.batch or trained.batch
    top = min(args.top, len(trained.class_names))
    watch = _Watch()
    predictions = watch.passing(predictor.predict_files(find_files(_names(args)), batch=batch_size, top=top))
    for line in WRITERS[args.format](predictions, top, trained.class_names):
        # Flushed line by line: the reader may be a program that waits for this very answer.
        print(line, flush=True)
    if watch.bad:
        print(f"{watch.bad} of {watch.files} files could not be read", file=sys.stderr)
    return 3 if watch.bad or not watch.files else 0


class _Watch:
    """Counts what passes, and tells of bad files on stderr."""

    def __init__(self) -> None:
        self.files = self.bad = 0

    def passing(self, predictions: Iterable["Prediction"]) -> Iterator["Prediction"]:
        from distxcept.report.plain_text import plain_line

        for one in predictions:
            self.files += 1
            if one.error is not None:
                self.bad += 1
                print(f"{plain_line(one.path)}: {one.error}", file=sys.stderr)
            yield one


def _names(args: argparse.Namespace) -> Iterator[str]:
    from distxcept.data.loose_files import listed_names

    for name in args.images:
        if name == "-":
            yield from listed_names(sys.stdin.buffer, separator=b"\0" if args.null else b"\n")
        else:
            yield name
