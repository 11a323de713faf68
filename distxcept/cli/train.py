"""`distxcept train`: also the program that horovodrun, mpirun and srun start."""

import argparse
from typing import TYPE_CHECKING, Any

from distxcept.cli.arguments import add_config_arguments, update_stretch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from distxcept.cli.onlookers import Onlookers
    from distxcept.cluster import Placement
    from distxcept.config.schema import Config
    from distxcept.engines import Engine
    from distxcept.memory.nvml import GpuState
    from distxcept.training.build import Training
    from distxcept.training.signals import StopSignals

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
    parser.add_argument(
        "--memory-phases",
        action="store_true",
        help="first measure the peak memory of forward, backward, reduce and apply, each on its own",
    )
    parser.add_argument(
        "--profile",
        metavar="updates=A-B",
        type=update_stretch,
        help="trace these updates on rank 0 for TensorBoard's profiler, such as updates=10-15",
    )
    parser.set_defaults(run=run, callbacks=(), make_network=None)  # the last two are of the Python interface


def run(args: argparse.Namespace) -> int:
    import os

    from distxcept.cli.alike import alike_on_all_ranks
    from distxcept.cluster import detect
    from distxcept.config.load import load_config
    from distxcept.launch.environment import prepare_environment

    with alike_on_all_ranks():
        config = load_config(args.config, args.overrides)
    placement = detect(os.environ)
    prepare_environment(config, verbose=args.verbose)

    from distxcept.training.signals import StopSignals

    with StopSignals() as signals:
        return _train(args, config, placement, signals)


def _train(args: argparse.Namespace, config: "Config", placement: "Placement", signals: "StopSignals") -> int:
    from distxcept.cli.attendance import Attendance
    from distxcept.cli.startup import chatter_aside
    from distxcept.launch.logs import log_path
    from distxcept.report.run_folder import make_run_folder

    folder = make_run_folder(config)
    with chatter_aside(args.verbose, log_path(folder, placement.rank)):
        from distxcept.cli.onlookers import Onlookers
        from distxcept.engines import create_engine
        from distxcept.report.run_telemetry import telemetry_of
        from distxcept.training.loop import Loop
        from distxcept.training.own_cards import StartReading, lost_cards_named

        reading = StartReading(config.memory)
        engine = create_engine(config.engine, placement, limit=reading.limit_bytes)
    onlookers = Onlookers(args, config, folder, chief=engine.is_chief)
    for notice in _first_notices(config, placement, engine) if engine.is_chief else ():
        onlookers.terminal.happened("notice", notice)
    with onlookers, Attendance(engine, folder, config, signals) as attendance, lost_cards_named(engine):
        training = _build(args, config, engine, folder, onlookers, reading.cards)
        onlookers.state = training.update.state
        phases = _measure_phases(training, onlookers) if args.memory_phases else None
        loop = Loop(
            training,
            folder,
            onlookers.observer,
            allow_config_change=args.allow_config_change,
            signals=signals,
            health=attendance.health,
            telemetry=telemetry_of(training, folder, phases),
        )
        attendance.health.before_exit = loop.saver.finish_soon
        loop.run()
    return attendance.exit_code


def _first_notices(config: "Config", placement: "Placement", engine: "Engine") -> list[str]:
    """What is wrong with the place where this process was put."""
    import os

    from distxcept.cluster.affinity import binding_notice
    from distxcept.cluster.compute import CUDA_PACKAGE, unused_gpus
    from distxcept.cluster.machine import installed_versions
    from distxcept.memory.nvml import count_gpus, missing_cards

    bound = binding_notice(placement, os.cpu_count() or 1, len(os.sched_getaffinity(0)))
    has_cuda = CUDA_PACKAGE in installed_versions([CUDA_PACKAGE])
    unused = unused_gpus(config, os.environ, count_gpus(), has_cuda=has_cuda) if engine.on_cpu else None
    missing = [] if engine.on_cpu else missing_cards()
    return [notice for notice in (placement.notice or bound, unused, *missing) if notice]


def _build(
    args: argparse.Namespace,
    config: "Config",
    engine: "Engine",
    folder: "Path",
    onlookers: "Onlookers",
    cards: "Sequence[GpuState]",
) -> "Training":
    """The training, within its limit, described in the run folder."""
    from distxcept.cli.startup import chatter_aside
    from distxcept.config.size import parse_size
    from distxcept.launch.logs import log_path
    from distxcept.memory.limit import limit_process
    from distxcept.memory.memory_plan import read_memory_plan
    from distxcept.report.run_folder import write_start_files
    from distxcept.training.build import build_training

    with chatter_aside(args.verbose, log_path(folder, engine.rank)) as aside:
        training = build_training(
            config,
            engine,
            cards=cards,
            at_most=read_memory_plan(folder),
            notice=lambda message: None if onlookers.terminal.console.quiet else aside.tell(message),
            make_network=args.make_network,
        )
    devices = engine.devices()
    if config.memory.limit is not None and engine.on_cpu:
        limit_process(parse_size(config.memory.limit) * len(engine.local_replicas))
    if engine.is_chief:
        more = training.network.files
        write_start_files(folder, config, training.plan, devices, remat=training.remat, more=more)
    return training


def _measure_phases(training: "Training", onlookers: "Onlookers") -> dict[str, int]:
    """Peak bytes of this rank; those of all go into the events."""
    import json

    from distxcept.training.memory_phases import describe_phases, measure_phases

    engine = training.engine
    ranks = [json.loads(one) for one in engine.exchange(json.dumps(measure_phases(training)).encode())]
    if engine.is_chief:
        most = max(ranks, key=lambda phases: phases["update"])
        where = f"rank {ranks.index(most)}, which needs most: " * (len(ranks) > 1)
        onlookers.observer.happened("memory_phases", where + describe_phases(most), **most, ranks=ranks)
    return ranks[engine.rank]
