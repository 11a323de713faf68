"""The `distxcept` command. Only parsing is imported here, so that `--help` stays instant."""

import argparse
import importlib
import io
import os
import sys
import traceback
from typing import NoReturn

from distxcept import __version__
from distxcept.cli.arguments import Parser, UsageError
from distxcept.errors import DistxceptError, LostForMemoryError, one_line

# One module of this package a command, in the order in which `--help` lists them. Each has
# `add_parser(subparsers, common)` and `run(args) -> int`, and imports heavy modules inside `run` only.
COMMANDS: tuple[str, ...] = (
    "train",
    "evaluate",
    "predict",
    "export",
    "plan",
    "launch",
    "submit",
    "config",
    "pack",
    "data",
    "report",
    "runs",
    "compare",
    "doctor",
    "prove",
    "completion",
)

STEPS = """\
  distxcept doctor                                 is this machine ready, and if not, why
  python -m distxcept.data.flowers data/flowers    five kinds of drawn flowers, to try it with
  distxcept train configs/quickstart.yaml          a small model that learns them, in a few minutes on a CPU
  distxcept evaluate runs/quickstart:best          what it is worth, class by class
  distxcept train configs/finetune.yaml data.train.path=photos
                                                   your own photos, one sub-folder per class
"""

FIRST_STEPS = f"""\
distxcept trains Xception image classifiers on one device or many, with the same result.

{STEPS}
All commands: distxcept --help. What a command can do, with examples: distxcept COMMAND --help.
"""

EPILOG = f"""\
first steps:
{STEPS}
exit codes: 0 done · 1 failed · 2 usage or config · 3 data · 4 does not fit in memory · 5 diverged ·
6 a peer was lost · 75 stopped on request with everything saved (run it again) · 130/143 killed
"""


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="distxcept",
        description="Train Xception image classifiers on one device or many, with the same result.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"distxcept {__version__}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    common.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="no messages but errors; what was asked for on stdout stays",
    )
    common.add_argument("-v", "--verbose", action="store_true", help="say more")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in COMMANDS:
        importlib.import_module(f"distxcept.cli.{name}").add_parser(subparsers, common)
    return parser


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    try:
        args = parser.parse_args(argv)
    except UsageError as error:
        return _report(error.prog, error)
    if args.command is None:
        print(FIRST_STEPS, end="")
        return 0
    try:
        code = args.run(args)
        sys.stdout.flush()
        return code
    except LostForMemoryError as error:
        if _is_supervised():
            return _report(f"distxcept {args.command}", error, debug=args.debug)
        print(
            f"distxcept {args.command}: resuming in a new process with a smaller memory plan", file=sys.stderr
        )
        _start_again([*(sys.argv[1:] if argv is None else argv), "run.resume=auto"])
    except DistxceptError as error:
        return _report(f"distxcept {args.command}", error, debug=args.debug)
    except KeyboardInterrupt:
        print(f"distxcept {args.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader went away (`| head`): not an error of ours. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _is_supervised() -> bool:
    """A launcher started this process, and decides what follows."""
    from distxcept.cluster import detect
    from distxcept.cluster.tether import LAUNCHER_VARIABLE

    return detect(os.environ).is_distributed or LAUNCHER_VARIABLE in os.environ


def _start_again(argv: list[str]) -> NoReturn:
    """This program anew, with these arguments, in place of this process."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # an open card would keep its memory
    os.execv(sys.executable, [sys.executable, "-m", "distxcept.cli.main", *argv])


def _report(prog: str, error: DistxceptError, *, debug: bool = False) -> int:
    from distxcept.cli.alike import is_teller

    if not error.alike or is_teller():
        if debug:
            traceback.print_exception(error)
        print(f"{prog}: {one_line(error)}", file=sys.stderr)
    return error.exit_code


def entry() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character is no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main())


if __name__ == "__main__":
    entry()
