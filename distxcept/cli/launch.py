"""`distxcept launch`: starts the ranks of a job and keeps them going."""

import argparse
from typing import Any

from distxcept.cli.arguments import add_config_arguments, positive_number, seconds_number, whole_number

EXAMPLES = """\
examples:
  distxcept launch cfg.yaml --np 4                           4 ranks on this machine, one for each GPU
  distxcept launch cfg.yaml --hosts gpu1:4,gpu2:4            8 ranks on two machines
  distxcept launch cfg.yaml --np 1 --max-restarts 9          one process, restarted when it is killed
  distxcept launch cfg.yaml --np 4 --dry-run                 show what would run

Ctrl-C or SIGTERM lets every rank save and ends with 75; the same command goes on. docs/launch.md tells more.
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
    _add_places(parser)
    _add_supervision(parser)
    _add_slurm(parser)
    parser.add_argument("--timeline", metavar="FILE", help="write Horovod's trace of every reduction there")
    parser.add_argument("--dry-run", action="store_true", help="print what would run, and run nothing")
    parser.set_defaults(run=run)


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--np",
        type=positive_number,
        metavar="N",
        help="ranks, one for each GPU (all slots of the hosts, or 1)",
    )
    parser.add_argument("--hosts", metavar="H:N,…", help="hosts and how many ranks each can take: h1:2,h2:2")
    parser.add_argument("--hostfile", metavar="FILE", help="the same, a line a host: h1 slots=2")
    parser.add_argument(
        "--via",
        default="auto",
        choices=("auto", "mpirun", "horovodrun", "srun", "gloo"),
        help="what starts the ranks; auto: srun in a SLURM allocation, else mpirun, nothing for one rank",
    )
    parser.add_argument(
        "--interface", metavar="NAME", help="network interface between the hosts, such as ib0"
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME",
        help="pass this variable to other hosts too; its value never stands on a command line",
    )
    parser.add_argument(
        "--launcher-option",
        action="append",
        default=[],
        metavar="WORD",
        help="one more word for mpirun or srun, as --launcher-option=--report-bindings",
    )


def _add_supervision(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-restarts",
        type=whole_number,
        default=3,
        metavar="K",
        help="restarts after lost ranks (3); with 0 nothing is ever restarted",
    )
    parser.add_argument(
        "--min-np",
        type=positive_number,
        default=1,
        metavar="M",
        help="go on with fewer ranks when hosts are lost, but not with fewer than this (1)",
    )
    parser.add_argument(
        "--grace",
        type=seconds_number,
        default=30.0,
        metavar="SECONDS",
        help="time to save after Ctrl-C or SIGTERM before the ranks are killed (30)",
    )


def _add_slurm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--requeue",
        action="store_true",
        help="in a SLURM job: put it back into the queue when its time is up and everything is saved",
    )
    parser.add_argument("--container", metavar="IMAGE", help="run the ranks in this Apptainer image")


def run(args: argparse.Namespace) -> int:
    import os
    import sys
    from pathlib import Path

    from distxcept.config.load import load_config
    from distxcept.launch.choose import GLOO_WARNING, Wishes, choose_ranks
    from distxcept.launch.ranks import Program
    from distxcept.launch.supervisor import Policy, Supervisor, make_folders

    def say(message: str) -> None:
        if not args.quiet:
            print(f"distxcept launch: {message}", file=sys.stderr, flush=True)

    config = load_config(args.config, args.overrides)
    run_folder = Path(config.run.dir) / config.run.name
    options = ["--quiet"] * args.quiet + ["--verbose"] * args.verbose + ["--debug"] * args.debug
    program = Program(
        run_folder=run_folder,
        config=args.config,
        overrides=tuple(args.overrides),
        options=tuple(options),
        container=args.container,
    )
    wishes = Wishes(
        ranks=args.np,
        hosts=args.hosts,
        hostfile=args.hostfile,
        via=args.via,
        min_ranks=args.min_np,
        interface=args.interface,
        timeline=args.timeline,
        env=tuple(args.env),
        launcher_options=tuple(args.launcher_option),
    )
    ranks = choose_ranks(wishes, program, os.environ)
    if args.via == "gloo":
        say(f"warning: {GLOO_WARNING}")
    if args.dry_run:
        return _show(ranks, args)
    make_folders(run_folder)
    policy = Policy(
        max_restarts=args.max_restarts, grace_seconds=args.grace, remat_allowed=config.memory.remat != "off"
    )
    supervisor = Supervisor(run_folder, ranks, policy, say)
    code = supervisor.run()
    if args.requeue:
        _requeue(code, supervisor, say)
    return code


def _requeue(code: int, supervisor: Any, say: Any) -> None:
    import os

    from distxcept.launch.slurm_job import job_name, requeue, should_requeue

    job = job_name(os.environ)
    if job is None or not should_requeue(code, supervisor.stop_signal, supervisor.has_new_snapshot()):
        return
    say(f"the job's time is up: putting job {job} back into the queue")
    problem = requeue(job)
    if problem:
        say(f"job {job} could not be requeued ({problem}); submit it again to go on")


def _show(ranks: Any, args: argparse.Namespace) -> int:
    """The command on stdout, ready to be pasted; what the environment gets beside it, and why, on stderr."""
    import os
    import shlex
    import sys

    from distxcept.launch.settings import settings

    for setting in settings(args.timeline, args.interface):
        if ranks.environ().get(setting.name) == setting.value and setting.name not in os.environ:
            print(f"{setting.name}={setting.value}   # {setting.reason}", file=sys.stderr)
    print(shlex.join(ranks.command(resume_auto=False)))
    return 0
