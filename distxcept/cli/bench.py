"""`distxcept bench`: how fast this machine trains, side by side with Keras' fit and a hand-written loop."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from distxcept.cli.arguments import positive_number, seconds_number

if TYPE_CHECKING:
    from distxcept.prove.race.turns import Contestant

EXAMPLES = """\
examples:
  distxcept bench                                  a few minutes: 128 px, batch 16
  distxcept bench --image-size 299 --batch 8
  distxcept bench --ranks 2 --rounds 5 --json      also in 2 ranks by Horovod
  distxcept bench --image-size 71 --width 0.25 --side-by-side 2      updates of 2 virtual batches; on a CPU each has a core

Contestants take turns of some seconds; what counts is the ratio within a round. Results of a busy machine mean little.
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "measure the training on this machine, side by side with Keras"
    parser = subparsers.add_parser(
        "bench",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    parser.add_argument(
        "--image-size",
        type=positive_number,
        default=128,
        metavar="PX",
        help="height and width of the images (128)",
    )
    parser.add_argument(
        "--batch", type=positive_number, default=16, metavar="N", help="images of an update (16)"
    )
    parser.add_argument("--width", type=float, default=1.0, metavar="X", help="of the network (1.0)")
    parser.add_argument(
        "--rounds", type=positive_number, default=7, metavar="N", help="turns of each contestant (7)"
    )
    parser.add_argument(
        "--seconds", type=seconds_number, default=4.0, metavar="S", help="of a turn, about (4)"
    )
    parser.add_argument("--ranks", type=positive_number, metavar="N", help="also N ranks by Horovod")
    parser.add_argument(
        "--side-by-side",
        type=positive_number,
        metavar="N",
        help="also updates of N such batches at once, on a CPU with a core each",
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from distxcept.prove.race import table
    from distxcept.prove.race.setting import Setting
    from distxcept.prove.race.turns import say, take_turns
    from distxcept.errors import ConfigError

    if not 71 <= args.image_size <= 4096 or not 0 < args.width <= 2:
        raise ConfigError("--image-size is from 71 to 4096, --width above 0 and at most 2")
    setting = Setting(args.image_size, args.batch, width=args.width)
    about = table.machine()
    results = take_turns(
        _contestants(args.ranks, args.side_by_side),
        setting.of_everybody,
        rounds=args.rounds,
        turn_seconds=args.seconds,
        notice=(lambda message: None) if args.quiet else say,
    )
    if args.json:
        print(json.dumps({"machine": about, **table.as_json(results, setting)}, indent=1))
    else:
        print(table.markdown(results, str(setting)))
        print(f"\n{table.describe(about)}")
    return 1 if any(result.failure for result in results) else 0


def _contestants(ranks: int | None, side_by_side: int | None) -> "list[Contestant]":
    from distxcept.prove.race import contestants
    from distxcept.errors import ConfigError

    found = [
        contestants.ours(),
        contestants.keras_fit("auto"),
        contestants.keras_fit("off"),
        contestants.loop(),
    ]
    if side_by_side:
        found.append(contestants.ours_side_by_side(side_by_side))
    if ranks:
        problem = contestants.why_no_ranks()
        if problem:
            raise ConfigError(f"--ranks {ranks}: {problem}")
        found.append(contestants.ours_in_ranks(ranks, "each"))
    return found
