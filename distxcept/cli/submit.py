"""`distxcept submit`: a run as a SLURM job."""

import argparse
from typing import TYPE_CHECKING, Any

from distxcept.cli.arguments import add_config_arguments, positive_number, whole_number

if TYPE_CHECKING:
    from distxcept.launch.partitions import NodeGroup

EXAMPLES = """\
examples:
  distxcept submit cfg.yaml --nodes 2 --gpus-per-node 4 --time 8:00:00
  distxcept submit cfg.yaml --gpus-per-node 1 --time 2:00:00 --array sweep.txt     a run for each line of overrides
  distxcept submit cfg.yaml --nodes 2 --gpus-per-node 4 --time 8:00:00 --dry-run   show the job, submit nothing

The job saves before its time is up, puts itself back into the queue, and goes on until the run is done.
docs/slurm.md tells more.
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "run as a SLURM job, requeued until it is done"
    parser = subparsers.add_parser(
        "submit",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    add_config_arguments(parser)
    _add_resources(parser)
    _add_behaviour(parser)
    parser.set_defaults(run=run)


def _add_resources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=positive_number, default=1, metavar="N", help="nodes (1)")
    parser.add_argument(
        "--gpus-per-node",
        type=whole_number,
        default=0,
        metavar="M",
        help="GPUs of each node, a rank each (0: CPU)",
    )
    parser.add_argument(
        "--ranks-per-node",
        type=positive_number,
        metavar="K",
        help="ranks of each node (one for each GPU, else 1)",
    )
    parser.add_argument(
        "--cpus-per-rank",
        type=positive_number,
        metavar="C",
        help="cores of each rank (its part of a node, by sinfo)",
    )
    parser.add_argument("--mem", metavar="SIZE", help="memory of each node, such as 64G")
    parser.add_argument("--time", required=True, metavar="T", help="limit: minutes, HH:MM:SS or D-HH:MM:SS")
    for name in ("partition", "account", "qos"):
        parser.add_argument(f"--{name}", metavar="NAME", help=f"{name} to use (the cluster's default)")


def _add_behaviour(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--array", metavar="FILE", help="a run for each line of this file, which holds overrides"
    )
    parser.add_argument("--dependency", metavar="D", help="start after other jobs: afterok:1234")
    parser.add_argument(
        "--via", default="srun", choices=("srun", "mpirun"), help="what starts the ranks (srun)"
    )
    parser.add_argument("--container", metavar="IMAGE", help="run the ranks in this Apptainer image")
    parser.add_argument("--max-restarts", type=whole_number, default=3, metavar="K", help="as for launch (3)")
    parser.add_argument(
        "--sbatch-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="one more option of sbatch's, as --sbatch-option=--constraint=a100",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the job, and submit nothing")
    parser.add_argument(
        "--wait", action="store_true", help="wait for the end of the job; its exit code is ours"
    )
    parser.add_argument("--follow", action="store_true", help="--wait, and show the job's output")


def run(args: argparse.Namespace) -> int:
    import sys
    from dataclasses import replace
    from pathlib import Path

    from distxcept.config.load import load_config
    from distxcept.launch.partitions import Request, check_request, fair_cores, parse_minutes
    from distxcept.launch.sbatch import output_path, render
    from distxcept.launch.supervisor import make_folders

    config = load_config(args.config, args.overrides)
    folder = Path(config.run.dir, config.run.name).absolute()
    job = _job(args, config.run.name, folder)
    for overrides in job.sweep:
        load_config(args.config, [*args.overrides, *overrides])
    partitions = _partitions(args)
    if job.cpus_per_rank is None and partitions:
        needed = dict(gpus_per_node=job.gpus_per_node, ranks_per_node=job.ranks_per_node)
        cores = fair_cores(partitions, partition=job.partition, **needed)
        job = replace(job, cpus_per_rank=cores)
    text = render(job)
    if args.dry_run:
        print(text, end="")
        return 0
    request = Request(
        nodes=job.nodes,
        gpus_per_node=job.gpus_per_node,
        cpus_per_node=(job.cpus_per_rank or 1) * job.ranks_per_node,
        minutes=parse_minutes(job.time) or 0,
        partition=job.partition,
    )
    check_request(request, partitions)
    make_folders(folder)
    script = folder / "job.sbatch"
    script.write_text(text, encoding="utf-8")
    number = _sbatch(script)
    output = output_path(job).replace("%j", number).replace("%A_%a", f"{number}_1")
    print(number)
    if not args.quiet:
        followed = f"the first of its {len(job.sweep)} runs" if job.sweep else "it"
        print(f"submitted job {number}; follow {followed} with: tail -F {output}", file=sys.stderr)
    return _wait(number, None if job.sweep else Path(output), args) if args.wait or args.follow else 0


def _partitions(args: argparse.Namespace) -> "list[NodeGroup]":
    """What the cluster has. A job that is only shown needs no cluster: it then leaves the cores to it."""
    import sys

    from distxcept.errors import ConfigError
    from distxcept.launch.partitions import read_partitions

    try:
        return read_partitions()
    except ConfigError as error:
        if not args.dry_run:
            raise
        if args.cpus_per_rank is None and not args.quiet:
            print(
                f"cores per rank are left to the cluster ({error}); --cpus-per-rank sets them",
                file=sys.stderr,
            )
        return []


def _job(args: argparse.Namespace, name: str, folder: Any) -> Any:
    import os
    import sys
    from pathlib import Path

    from distxcept.errors import ConfigError
    from distxcept.launch.sbatch import Job, read_sweep

    ranks_per_node = args.ranks_per_node or max(1, args.gpus_per_node)
    alone = args.nodes * ranks_per_node == 1
    launch = [sys.executable, "-m", "distxcept.cli.main", "launch", "--requeue"]
    launch += ["--max-restarts", str(args.max_restarts)]
    launch += ["--np", "1"] if alone else ["--via", args.via]
    launch += ["--container", os.path.abspath(args.container)] if args.container else []
    try:
        sweep = read_sweep(Path(args.array).read_text(encoding="utf-8")) if args.array else ()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--array: {args.array!r} cannot be read: {error}") from error
    return Job(
        name=name,
        folder=str(folder),
        launch=tuple(launch),
        config=os.path.abspath(args.config),
        overrides=tuple(args.overrides),
        nodes=args.nodes,
        gpus_per_node=args.gpus_per_node,
        ranks_per_node=ranks_per_node,
        cpus_per_rank=args.cpus_per_rank,
        time=args.time,
        partition=args.partition,
        account=args.account,
        qos=args.qos,
        memory=args.mem,
        dependency=args.dependency,
        options=tuple(args.sbatch_option),
        sweep=sweep,
    )


def _sbatch(script: Any) -> str:
    import subprocess

    from distxcept.errors import ConfigError

    done = subprocess.run(
        ["sbatch", "--parsable", str(script)], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    number = done.stdout.strip().split(";")[0]
    if done.returncode or not number.isdecimal():
        raise ConfigError(f"sbatch refused {script}: {' '.join((done.stderr or done.stdout).split())[:500]}")
    return number


def _wait(number: str, output: Any, args: argparse.Namespace) -> int:
    import sys

    from distxcept.launch.follow import follow_job

    try:
        state, code = follow_job(number, output if args.follow else None, sys.stderr.buffer)
    except KeyboardInterrupt:
        print(f"job {number} goes on; end it with: scancel {number}", file=sys.stderr)
        return 130
    if not args.quiet:
        print(f"job {number} ended: {state}", file=sys.stderr)
    return code if code or state == "COMPLETED" else 1
