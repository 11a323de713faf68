"""`distxcept plan`: what a run needs in memory, before it runs. No GPU and no TensorFlow is needed for it."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from distxcept.cli.arguments import add_config_arguments, replicas_number

if TYPE_CHECKING:
    from distxcept.config.schema import Config
    from distxcept.memory.candidates import Candidate
    from distxcept.memory.links import Algorithm
    from distxcept.memory.planning import Proposal
    from distxcept.memory.probe import Measured
    from distxcept.memory.reduction import Reduction
    from distxcept.memory.target import Target

PER_NODE = 8

EXAMPLES = """\
examples:
  distxcept plan configs/flowers.yaml                             for the cards of this machine, or its own memory
  distxcept plan configs/imagenet_paper.yaml --device "RTX 3090" --world 8
  distxcept plan configs/flowers.yaml --memory 6GiB batch.virtual=8 model.image_size=256
  distxcept plan configs/flowers.yaml --device T4 --json
  distxcept plan configs/quickstart.yaml --probe memory.limit=2GiB        measured on this machine
  distxcept plan configs/imagenet_large_batch.yaml --device A100 --world 64 --network nvlink,100Gb

Nothing in the table changes the result of the training; it changes what fits and how fast it is.
exit codes: 0 there is a plan that fits · 2 usage or config · 4 nothing fits; the ways out are shown
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "estimate memory and choose the fastest plan that fits"
    parser = subparsers.add_parser(
        "plan",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    add_config_arguments(parser)
    device = parser.add_mutually_exclusive_group()
    device.add_argument("--memory", metavar="SIZE", help="memory of one GPU, like 16GiB")
    device.add_argument("--device", metavar="NAME", help='a card by its name, like "RTX 3090" or T4')
    parser.add_argument("--world", type=replicas_number, metavar="N", help="replicas of the whole job")
    parser.add_argument(
        "--network",
        metavar="LINK",
        help="links between the devices, for the time of a reduction: 100Gb, 100Gb-rdma, 1.5GB/s@50us, nvlink,100Gb "
        "(pcie,25Gb)",
    )
    parser.add_argument("--per-node", type=replicas_number, metavar="N", help="devices that share a node (8)")
    parser.add_argument(
        "--probe",
        action="store_true",
        help="try the real step of a few candidates on this machine, and take the fastest that fits",
    )
    parser.add_argument("--json", action="store_true", help="the plan as JSON on stdout")
    parser.set_defaults(run=run)


def _probe(
    plan: "Proposal", target: "Target", args: argparse.Namespace
) -> "tuple[Candidate | None, list[Measured]]":
    """What fits in truth. On stderr how it goes."""
    from distxcept.errors import ConfigError
    from distxcept.launch.environment import prepare_environment
    from distxcept.memory.measuring import describe, kind_of, measure, trial_request

    if args.memory or args.device:
        raise ConfigError("--probe measures this machine's own device; leave out --memory and --device")
    prepare_environment(
        plan.config, verbose=args.verbose
    )  # the children inherit it, as those of the training do
    said: list[str] = []

    def tell(message: str) -> None:
        said.append(message)
        if not args.quiet:
            print(message, file=sys.stderr, flush=True)

    trial = trial_request(plan, plan.batches, target.device, replica=0)
    best, measured = measure(plan, trial, kind=kind_of(target.device, target.cards), notice=tell)
    for one in measured:
        if (line := describe(one)) not in said:  # known from an earlier measurement
            tell(line)
    return best, measured


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from distxcept.config.load import load_config
    from distxcept.data.host import usable_cores
    from distxcept.data.peek import peek
    from distxcept.errors import DoesNotFitError
    from distxcept.memory.planning import make_plan
    from distxcept.report import reduction_table
    from distxcept.report.plan_table import as_json, reason, show, show_ways

    config = load_config(args.config, args.overrides)
    target = _target(config, args)
    plan = make_plan(
        config,
        target.budget,
        peek(config.data.train),
        replicas=target.replicas,
        engine=target.engine,
        threads=config.engine.threads or usable_cores(),
    )
    if args.probe:
        plan = plan.with_measured(*_probe(plan, target, args))
    exchanged = _reduction(plan, args)
    if args.json:
        more = {"reduction": reduction_table.as_json(exchanged)} if exchanged else {}
        print(json.dumps(as_json(plan) | more, indent=1, ensure_ascii=False))
    else:
        console = Console(highlight=False, soft_wrap=True)
        show(plan, console)
        show_ways(plan, console)
        if exchanged:
            reduction_table.show(exchanged, console, args.world)
    if plan.chosen is None:
        raise DoesNotFitError(reason(plan))
    return 0


def _reduction(plan: "Proposal", args: argparse.Namespace) -> "Reduction | None":
    """What several devices exchange; None where nobody asked for several."""
    from distxcept.memory.links import parse_network
    from distxcept.memory.reduction import reduction

    algorithm: Algorithm = "hierarchical" if plan.config.engine.network.hierarchical else "auto"
    network = parse_network(args.network, per_node=args.per_node or PER_NODE, algorithm=algorithm)
    if not args.network and (args.world or 1) < 2:
        return None
    return reduction(plan, network, args.world)


def _target(config: "Config", args: argparse.Namespace) -> "Target":
    from distxcept.config.size import parse_size, show_size
    from distxcept.errors import ConfigError
    from distxcept.memory.devices import find_card
    from distxcept.memory.target import card_elsewhere, this_machine

    if args.memory is not None:
        try:
            memory_bytes = parse_size(args.memory)
        except ValueError as error:
            raise ConfigError(f"--memory: {error}") from None
        return card_elsewhere(config, f"a GPU of {show_size(memory_bytes)}", memory_bytes, args.world)
    if args.device is not None:
        card = find_card(args.device)
        text = f"{card.name} ({show_size(card.memory_bytes)}, from the table of cards)"
        return card_elsewhere(config, text, card.memory_bytes, args.world)
    return this_machine(config, args.world, args.per_node)
