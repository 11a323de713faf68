"""Ranks on the cores of this machine: speed, time in reduction, and how much of it the backward pass hides.

    python benchmarks/scale.py                                       1, 2 and 4 ranks and mirrored 2, at 299 px
    python benchmarks/scale.py --image-size 128 --batches 4,8,16 --ranks 1,2

Every rank has the whole batch, and the ranks divide the same cores, so an efficiency of 1 is the speed of one process with
all cores. Time in reduction and overlap are read from Horovod's timeline, in a run of its own.

Arrangements (batch sizes, ranks) are measured minutes apart, and a machine's speed changes. So all of them take turns with
one reference, one rank with the middle batch: a round in which the reference was slow counts that much less.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from distxcept.prove.race import contestants as ready_made
from distxcept.prove.race import table
from distxcept.prove.race.setting import Setting
from distxcept.prove.race.timeline import read_timeline
from distxcept.prove.race.turns import Contestant, Result, say, take_turns

TWO_OF_ONE, FOUR_OF_TWO = 1.1, 0.90
TRACED_TURNS = 4
MIRRORED = "mirrored 2"
Arrangement = tuple[int | str, int]
"""Ranks or MIRRORED, and the batch of each."""


def contestant_of(ranks: int | str, batch: int) -> Contestant:
    if ranks == 1:
        contestant = replace(ready_made.ours(), name="distxcept, 1 rank", about="one process, all cores")
    elif isinstance(ranks, int):
        contestant = ready_made.ours_in_ranks(ranks, "each")
    else:
        contestant = ready_made.ours_mirrored(2, "each", threads=1)
    return replace(contestant, name=f"{contestant.name}, batch {batch}")


def steadied(result: Result, reference: Result) -> Result:
    """With the seconds that it would have taken had the reference been as fast as usual in each of its rounds."""
    usual = reference.speed.median
    turns = [
        replace(turn, seconds=turn.seconds * turn.images_per_second / ratio / usual)
        for turn, ratio in zip(result.turns, result.ratios, strict=True)
    ]
    return replace(result, turns=turns)


def update_seconds(result: Result) -> float:
    return statistics.median(turn.seconds / turn.steps for turn in result.turns)


def timeline_of(ranks: int, setting: Setting, seconds: float) -> dict[str, Any]:
    """Of some updates in a row, `seconds` long about."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json"
        traced = contestant_of(ranks, setting.batch)
        traced = replace(traced, environ={**traced.environ, "HOROVOD_TIMELINE": str(path)})
        (result,) = take_turns([traced], setting.of_everybody, rounds=1, turn_seconds=seconds, notice=say)
        if result.failure or not path.exists():
            return {"ranks": ranks, "failure": result.failure or "no timeline was written"}
        found = read_timeline(path)[-result.turns[0].steps :]
    if not found:
        return {"ranks": ranks, "failure": "the timeline has no reduction of gradients"}
    return {
        "ranks": ranks,
        "reduction_seconds": statistics.median(one.busy_seconds for one in found),
        "exposed_seconds": statistics.median(one.exposed_seconds for one in found),
        "hidden_part": statistics.median(one.hidden_part for one in found),
        "update_seconds": update_seconds(result),
    }


def show_timelines(timelines: list[dict[str, Any]]) -> None:
    print("\n### Time in reduction, from Horovod's timeline\n")
    print(
        "| ranks | reduction, ms | after the backward pass, ms | hidden | update, ms |\n|---|---|---|---|---|"
    )
    for one in timelines:
        if "failure" in one:
            print(f"| {one['ranks']} | {one['failure']} | | | |")
            continue
        print(
            f"| {one['ranks']} | {one['reduction_seconds'] * 1e3:.0f} | {one['exposed_seconds'] * 1e3:.0f} | "
            f"{one['hidden_part']:.0%} | {one['update_seconds'] * 1e3:.0f} |"
        )


def verdicts(seconds: dict[Arrangement, float]) -> list[str]:
    """More ranks against fewer: speed of all of them, each with the same batch."""
    lines = []
    for more, fewer, bar in ((2, 1, TWO_OF_ONE), (4, 2, FOUR_OF_TWO)):
        ratios = [
            more * seconds[fewer, batch] / (fewer * of_more)
            for (ranks, batch), of_more in seconds.items()
            if ranks == more and (fewer, batch) in seconds
        ]
        if ratios:
            told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            reached = table.verdict(statistics.median(ratios) >= bar)
            lines.append(f"{more} ranks: {told} × the speed of {fewer} (bar {bar}: {reached})")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="1,2,4", help="starting with 1")
    parser.add_argument("--image-size", type=int, default=299)
    parser.add_argument("--batches", default="2,4,8", help="of each rank")
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a turn, about")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    ranks, batches = ([int(one) for one in text.split(",")] for text in (args.ranks, args.batches))
    if ranks[0] != 1:
        parser.error("--ranks starts with 1, which the others are compared with")
    if max(ranks) > 1 and (problem := ready_made.why_no_ranks()):
        say(f"left out: more than one rank: {problem}")
        ranks = [1]
    base, about = Setting(args.image_size, width=args.width), table.machine()
    # The reference first; then the small ones, of which many fit into memory at once.
    arrangements: list[Arrangement] = [(1, batches[len(batches) // 2])]
    columns: list[int | str] = [*ranks, MIRRORED]
    every = [(column, batch) for batch in batches for column in columns]
    arrangements += [one for one in every if one not in arrangements]
    contestants = [contestant_of(*arrangement) for arrangement in arrangements]
    batch_of = {one.name: batch for one, (_, batch) in zip(contestants, arrangements, strict=True)}
    raced = take_turns(
        contestants,
        lambda contestant: replace(base, batch=batch_of[contestant.name]),
        rounds=args.rounds,
        turn_seconds=args.seconds,
        notice=say,
    )
    print(table.markdown(raced, f"Ranks, {args.image_size} px, the batch for each") + "\n", flush=True)
    if raced[0].failure:
        return 1
    steady = {
        arrangement: update_seconds(steadied(result, raced[0]))
        for arrangement, result in zip(arrangements, raced, strict=True)
        if result.turns
    }
    largest = replace(base, batch=batches[-1])
    timelines = [timeline_of(count, largest, TRACED_TURNS * args.seconds) for count in ranks if count > 1]
    show_timelines(timelines)
    print()
    for line in verdicts(steady):
        print(f"- {line}")
    print(f"\n{table.describe(about)}")
    if args.json:
        updates = [
            {"ranks": ranks, "batch": batch, "seconds": seconds} for (ranks, batch), seconds in steady.items()
        ]
        result = {**table.as_json(raced, base), "updates": updates, "timeline": timelines}
        Path(args.json).write_text(json.dumps({"machine": about, "scale": result}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
