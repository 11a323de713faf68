"""`distxcept train`: also the program that horovodrun, mpirun and srun start."""

import argparse
from typing import Any

from distxcept.cli.arguments import add_config_arguments
from distxcept.errors import DistxceptError

EXAMPLES = """\
examples:
  distxcept train configs/quickstart.yaml
  distxcept train configs/quickstart.yaml run.name=twice engine.devices=2     2 GPUs, or 2 logical CPUs
  mpirun -np 4 distxcept train configs/quickstart.yaml

Run the same command again to go on after Ctrl-C, a crash or a preemption, on any number of devices.
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "train a model, or go on with a run that was interrupted"
    parser = subparsers.add_parser(
        "train",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    add_config_arguments(parser)
    parser.add_argument(
        "--allow-config-change",
        action="store_true",
        help="go on although the config now defines another training than before",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import os

    from distxcept.cluster import detect
    from distxcept.config.load import load_config

    config = load_config(args.config, args.overrides)
    placement = detect(os.environ)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if args.verbose else "2")

    from distxcept.cli.startup import chatter_aside

    with chatter_aside(args.verbose) as chatter:
        from distxcept.engines import create_engine
        from distxcept.report.console import Terminal
        from distxcept.report.run_folder import RunFiles, make_run_folder, write_start_files
        from distxcept.training.build import build_training
        from distxcept.training.events import Observers
        from distxcept.training.loop import Loop

        engine = create_engine(config.engine, placement)
        training = build_training(config, engine)
        folder = make_run_folder(config)
        chatter.seek(0)
        # Appended: the supervisor's log of this rank is the same file.
        with (folder / "logs" / f"rank-{engine.rank}.log").open("ab") as log:
            log.write(chatter.read())
    if engine.is_chief:
        write_start_files(folder, config, training.plan, engine.devices(), remat=training.remat)
    terminal = Terminal(
        f"distxcept · {config.run.name}", quiet=args.quiet or not engine.is_chief, verbose=args.verbose
    )
    if placement.notice and engine.is_chief:
        terminal.happened("notice", placement.notice)
    loop = Loop(
        training,
        folder,
        Observers([terminal, RunFiles(folder, lambda message: terminal.happened("warning", message))]),
        allow_config_change=args.allow_config_change,
    )
    try:
        loop.run()
    except DistxceptError as error:
        # Such a decision rests on numbers that all ranks share, so all take it; one of them tells the user.
        if engine.is_chief:
            raise
        return error.exit_code
    return 0
