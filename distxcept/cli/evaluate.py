"""`distxcept evaluate`: loss and accuracy of a snapshot on its run's validation data, or on other data."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from distxcept.cli.arguments import OVERRIDES_HELP

if TYPE_CHECKING:
    from distxcept.checkpoint.names import Found
    from distxcept.config.schema import Config
    from distxcept.data.sources import Source

EXAMPLES = """\
examples:
  distxcept evaluate runs/quickstart                     the newest snapshot
  distxcept evaluate runs/quickstart:best --json         the best one
  distxcept evaluate runs/quickstart:update=1200
  distxcept evaluate runs/quickstart data.validation.path=/other/images engine.devices=2
  mpirun -np 4 distxcept evaluate runs/quickstart

Every sample counts once, whatever the number of devices; the moving average of the weights is used where the run keeps one.
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "measure a snapshot of a run on its validation data"
    parser = subparsers.add_parser(
        "evaluate",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    parser.add_argument("snapshot", metavar="RUN", help="RUN, RUN:best, RUN:update=N, or a snapshot's folder")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", default=[], help=OVERRIDES_HELP)
    parser.add_argument("--config", metavar="FILE", help="instead of the run's own config.yaml")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import os

    from distxcept.checkpoint.names import find_snapshot
    from distxcept.cluster import detect

    found = find_snapshot(args.snapshot)
    config = _config(args, found)
    placement = detect(os.environ)

    from distxcept.cli.startup import chatter_aside
    from distxcept.launch.environment import prepare_environment

    prepare_environment(config, verbose=args.verbose)

    with chatter_aside(args.verbose):
        from distxcept.data.options import pipeline_options
        from distxcept.engines import create_engine
        from distxcept.training.inference import evaluator_of

        class_names = tuple(found.snapshot.state.get("class_names") or ())
        source = _validation(config, class_names)
        engine = create_engine(config.engine, placement)
        evaluate = evaluator_of(found.snapshot, config, engine, class_names or source.class_names)
    size = config.model.image_size
    micro = config.batch.virtual if config.batch.micro == "auto" else config.batch.micro
    bad: list[str] = []
    result = evaluate(
        source,
        image_size=size,
        batch_per_replica=micro,
        on_bad=lambda index, path, reason: bad.append(f"{path}: {reason}"),
        **pipeline_options(
            config.data, source, image_size=size, training=False, processes=engine.local_ranks
        ),
    )
    for reason in [*found.passed_over, *bad] if engine.is_chief and not args.quiet else []:
        print(f"not used: {reason}", file=sys.stderr)
    if engine.is_chief:
        _print(
            args,
            found,
            {**result.metrics(), "samples": result.samples, "unreadable": len(source) - result.samples},
        )
    return 0


def _config(args: argparse.Namespace, found: "Found") -> "Config":
    from distxcept.config.load import load_config
    from distxcept.errors import ConfigError

    path = args.config or (found.run_folder and found.run_folder / "config.yaml")
    if not path:
        raise ConfigError(f"{args.snapshot} does not lie in a run folder; give its config with --config FILE")
    return load_config(str(path), args.overrides)


def _validation(config: "Config", class_names: tuple[str, ...]) -> "Source":
    """Only this split is opened where it has a source of its own: the training data may be elsewhere."""
    from distxcept.data.sources import open_source, open_sources
    from distxcept.errors import ConfigError

    if config.data.validation is not None:
        return open_source(config.data.validation, split="validation", class_names=class_names or None)
    _, validation = open_sources(config.data)
    if validation is None:
        raise ConfigError(
            "the run has no validation data; name some: data.validation.kind=folder data.validation.path=PATH"
        )
    return validation


def _print(args: argparse.Namespace, found: "Found", result: dict[str, Any]) -> None:
    snapshot = found.snapshot
    if args.json:
        print(json.dumps({"snapshot": str(snapshot.path), "update": snapshot.update, **result}))
        return
    unreadable = f", {result['unreadable']} more unreadable" if result["unreadable"] else ""
    print(
        f"{snapshot.path}: {result['samples']} images{unreadable} · loss {result['validation_loss']:.4f} · "
        f"top-1 {result['validation_accuracy']:.2%} · top-5 {result['validation_top5_accuracy']:.2%}"
    )
