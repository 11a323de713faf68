"""`distxcept report`: a run as one HTML file."""

import argparse
from typing import Any

EXAMPLES = """\
examples:
  distxcept report runs/quickstart                      writes runs/quickstart/report.html
  distxcept report runs/quickstart --output /tmp/quickstart.html

The file needs no network and no other file: mail it, put it on a web server, open it on a phone. It is also written at the
end of each run. A run that is still under way can be looked at, too.
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "write a run's results, curves and events into one HTML file"
    parser = subparsers.add_parser(
        "report",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    parser.add_argument("run_name", metavar="RUN", help="run folder, or the name of a run below runs/")
    parser.add_argument("-o", "--output", metavar="FILE", help="instead of RUN/report.html")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from distxcept.report.html import write_report
    from distxcept.report.runs import open_run

    path = write_report(open_run(args.run_name), Path(args.output) if args.output else None)
    if not args.quiet:
        print(path)
    return 0
