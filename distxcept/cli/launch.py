"""`distxcept launch`: starts the ranks of a job and keeps them going."""

import argparse
from typing import Any

from distxcept.cli.arguments import add_config_arguments

EXAMPLES = """\
examples:
  distxcept launch cfg.yaml --np 1 --max-restarts 3          one process, restarted when it is killed
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "start the ranks of a run and keep them going"
    parser = subparsers.add_parser(
        "launch",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    add_config_arguments(parser)
    parser.add_argument("--np", type=_positive, default=1, metavar="N", help="ranks, one for each GPU (1)")
    parser.add_argument(
        "--max-restarts",
        type=_count,
        default=3,
        metavar="K",
        help="restarts after lost ranks (3); with 0 nothing is ever restarted",
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="time to save after Ctrl-C or SIGTERM before the ranks are killed (30)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would run, and run nothing")
    parser.set_defaults(run=run)


def _positive(text: str) -> int:
    number = _count(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 or more")
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number")
    return int(text)


def run(args: argparse.Namespace) -> int:
    import os
    import shlex
    import sys
    from pathlib import Path

    from distxcept.config.load import load_config
    from distxcept.errors import ConfigError
    from distxcept.launch.plain import PlainRank, Program
    from distxcept.launch.supervisor import Policy, Supervisor, make_folders

    if args.np > 1:
        raise ConfigError("--np of more than 1 is still to come; start several ranks with mpirun or srun")
    config = load_config(args.config, args.overrides)
    run_folder = Path(config.run.dir) / config.run.name
    options = ["--quiet"] * args.quiet + ["--verbose"] * args.verbose + ["--debug"] * args.debug
    program = Program(
        run_folder=run_folder,
        config=args.config,
        overrides=tuple(args.overrides),
        options=tuple(options),
    )
    ranks = PlainRank(program, os.environ)
    if args.dry_run:
        print(shlex.join(ranks.command(resume_auto=False)))
        return 0

    def say(message: str) -> None:
        if not args.quiet:
            print(f"distxcept launch: {message}", file=sys.stderr, flush=True)

    make_folders(run_folder)
    policy = Policy(
        max_restarts=args.max_restarts,
        grace_seconds=args.grace,
        remat_allowed=config.memory.remat != "off",
    )
    return Supervisor(run_folder, ranks, policy, say).run()
