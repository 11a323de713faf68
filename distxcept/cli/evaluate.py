"""`distxcept evaluate`: how good a snapshot is, on a split of its run's data or on a folder of images."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from distxcept.cli.arguments import OVERRIDES_HELP, SNAPSHOT_HELP

if TYPE_CHECKING:
    from distxcept.training.scores import Scores
    from distxcept.training.trained import Trained

EXAMPLES = """\
examples:
  distxcept evaluate runs/quickstart                     the newest snapshot
  distxcept evaluate runs/quickstart:best --json         the best one
  distxcept evaluate runs/quickstart:update=1200 --split train
  distxcept evaluate runs/quickstart --data photos/test  one sub-folder per class
  distxcept evaluate runs/quickstart data.validation.path=/other/images engine.devices=2
  mpirun -np 4 distxcept evaluate runs/quickstart

Every sample counts once, whatever the number of devices; the moving average of the weights is used where the run keeps one.
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "measure a snapshot of a run: accuracy, classes, confusions, calibration"
    parser = subparsers.add_parser(
        "evaluate",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    parser.add_argument("snapshot", metavar="RUN", help=SNAPSHOT_HELP)
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", default=[], help=OVERRIDES_HELP)
    parser.add_argument(
        "--split", choices=("validation", "train"), help="of the run's data: validation, train"
    )
    parser.add_argument("--data", metavar="FOLDER", help="instead, images in one sub-folder per class")
    parser.add_argument("--config", metavar="FILE", help="instead of the run's own config.yaml")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import os

    from distxcept.cli.alike import alike_on_all_ranks
    from distxcept.cluster import detect
    from distxcept.launch.environment import prepare_environment
    from distxcept.training.trained import find_trained

    with alike_on_all_ranks():
        trained = find_trained(args.snapshot, config_file=args.config, overrides=tuple(args.overrides))
    placement = detect(os.environ)
    prepare_environment(trained.config, verbose=args.verbose)

    from distxcept.cli.startup import chatter_aside

    with chatter_aside(args.verbose):
        from distxcept.data.sources import open_for_scores
        from distxcept.engines import create_engine
        from distxcept.training.inference import evaluate_trained
        from distxcept.training.own_cards import check_one_rank_per_card

        source = open_for_scores(trained.config.data, trained.class_names, split=args.split, folder=args.data)
        engine = create_engine(trained.config.engine, placement)
        check_one_rank_per_card(engine)
    bad: list[str] = []
    scores = evaluate_trained(
        trained, engine, source, on_bad=lambda index, path, reason: bad.append(f"{path}: {reason}")
    )
    for reason in [*trained.passed_over, *bad] if engine.is_chief and not args.quiet else []:
        print(f"not used: {reason}", file=sys.stderr)
    if engine.is_chief:
        _print(args, trained, scores, unreadable=len(source) - scores.samples)
    return 0


def _print(args: argparse.Namespace, trained: "Trained", scores: "Scores", *, unreadable: int) -> None:
    from distxcept.report.scores_text import scores_text

    snapshot = trained.snapshot
    if args.json:
        result = {
            "snapshot": str(snapshot.path),
            "update": snapshot.update,
            "samples": scores.samples,
            "unreadable": unreadable,
            "validation_loss": scores.loss,
            "validation_accuracy": scores.accuracy,
            "validation_top5_accuracy": scores.top5_accuracy,
            **scores.to_json(),
        }
        print(json.dumps(result))
        return
    more = f", {unreadable} more unreadable" if unreadable else ""
    print(f"{snapshot.path}: {scores.samples} images{more}")
    print(scores_text(scores))
