"""Ranks on the cores of this machine: speed, time in reduction, overlap, and the scaling model against all of it.

    python benchmarks/scale.py                                       1, 2 and 4 ranks and mirrored 2, at 299 px
    python benchmarks/scale.py --image-size 128 --batches 4,8,16 --ranks 1,2

Every rank has the whole batch, and the ranks divide the same cores, so an efficiency of 1 is the speed of one process with
all cores. Time in reduction and overlap are read from Horovod's timeline, in a run of its own.

The model gets the time of a micro batch, the reductions that were timed at the start, and the jitter; it has to predict
the time of an update within 15 %. Then the harder question: the time of a batch size that it has not seen, by a line
through those of the others.

What is compared across arrangements (batch sizes, ranks) was measured minutes apart, and a machine's speed changes. All
take turns with the same reference, one rank with the middle batch, and there seconds are counted in those of the reference:
a round in which it was slow counts that much less.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from distxcept.prove.race import contestants as ready_made
from distxcept.prove.race import table
from distxcept.prove.race.setting import Setting
from distxcept.prove.race.timeline import read_timeline
from distxcept.prove.race.turns import Contestant, Result, say, take_turns
from distxcept.memory.links import Network, link_by_measurement
from distxcept.memory.scaling import Work, predict, ready_parts
from distxcept.model.layout import Layout

TOLERANCE = 0.15
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
    usual, turns = reference.speed.median, []
    for turn, ratio in zip(result.turns, result.ratios, strict=True):
        factor = turn.images_per_second / ratio / usual
        work = [[seconds * factor for seconds in update] for update in turn.facts["work_seconds"]]
        turns.append(replace(turn, seconds=turn.seconds * factor, facts={**turn.facts, "work_seconds": work}))
    return replace(result, turns=turns)


def update_seconds(result: Result) -> float:
    return statistics.median(turn.seconds / turn.steps for turn in result.turns)


def work_seconds(result: Result) -> list[float]:
    """Until a rank's sums were ready, the mean of all ranks; one for each update."""
    return [statistics.mean(update) for update in _updates(result)]


def jitter(result: Result) -> float:
    """How far ranks lie apart in the same update, as a part of their work. What slows all of them is none."""
    variances = [
        statistics.variance(one) / statistics.mean(one) ** 2 for one in _updates(result) if len(one) > 1
    ]
    return math.sqrt(statistics.mean(variances)) if variances else 0.0


def _updates(result: Result) -> list[list[float]]:
    """Of each update the work of every rank."""
    return [update for turn in result.turns for update in turn.facts["work_seconds"]]


def fit_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and value at zero, by least squares; neither below zero."""
    if len(points) < 2:
        return points[0][1] / points[0][0], 0.0
    x, y = zip(*points, strict=True)
    slope, start = statistics.linear_regression(x, y)
    return max(0.0, slope), max(0.0, start)


def model_check(
    by_batch: dict[int, Result], alone: dict[int, Result], ranks: int, setting: Setting, *, seen: bool
) -> list[dict]:
    """Predicted against measured, for each batch size; `seen`: from its own micro batches, else from those of the others."""
    works = {batch: work_seconds(result) for batch, result in by_batch.items() if result.turns}
    if not works:
        return []
    middles = {batch: statistics.median(seconds) for batch, seconds in works.items()}
    fixed = statistics.median(
        update_seconds(result) - statistics.median(work_seconds(result)) for result in alone.values()
    )
    layout = Layout(classes=setting.classes, width=setting.width)
    unknown = Work(
        sample_seconds=0.0,
        step_seconds=0.0,
        fixed_seconds=max(0.0, fixed),
        gradient_bytes=4.0 * sum(p.elements for p in layout.parameters if not p.moving),
        ready_parts=ready_parts(layout, setting.image_size),
        jitter=min(0.5, statistics.median(jitter(by_batch[batch]) for batch in works)),
    )
    network = _network(next(iter(by_batch.values())), ranks)
    rows = []
    for batch, result in by_batch.items():
        if result.turns:
            used = [(size, seconds) for size, seconds in middles.items() if (size == batch) is seen]
            slope, start = fit_line(used or [*middles.items()])
            work = replace(unknown, sample_seconds=slope, step_seconds=start)
            found = predict(work, samples=batch, micro_steps=1, world=ranks, network=network)
            measured = update_seconds(result)
            rows.append(
                {
                    "ranks": ranks,
                    "batch": batch,
                    "measured_seconds": measured,
                    "predicted_seconds": found.seconds,
                    "exposed_seconds": found.exposed_seconds,
                    "waiting_seconds": found.waiting_seconds,
                    "error": found.seconds / measured - 1,
                }
            )
    return rows


def _network(result: Result, ranks: int) -> Network:
    if ranks == 1:
        anything = link_by_measurement(1e8, 1.0, 1e-3, 2)
        return Network(anything, anything, 1)
    start = result.start
    link = link_by_measurement(start["reduced_bytes"], start["reduced_seconds"], start["tiny_seconds"], ranks)
    return Network(link, link, per_node=ranks, algorithm="ring")


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


def show_model(checks: list[dict], caption: str) -> None:
    print(f"\n### {caption}\n")
    print("| ranks | batch | measured, ms | predicted, ms | error |\n|---|---|---|---|---|")
    for one in checks:
        print(
            f"| {one['ranks']} | {one['batch']} | {one['measured_seconds'] * 1e3:.0f} | "
            f"{one['predicted_seconds'] * 1e3:.0f} | {one['error']:+.1%} |"
        )
    if checks:
        worst = max(abs(one["error"]) for one in checks)
        print(f"\n- largest error {worst:.1%} (bar {TOLERANCE:.0%}: {table.verdict(worst <= TOLERANCE)})")


def show(checks: list[dict], unseen: list[dict], timelines: list[dict]) -> None:
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
    show_model(checks, "The scaling model")
    show_model(unseen, "Batch sizes that it has not seen, in seconds of the reference")
    speeds = {(one["ranks"], one["batch"]): one["ranks"] / one["measured_seconds"] for one in unseen}
    print()
    for more, fewer, bar in ((2, 1, TWO_OF_ONE), (4, 2, FOUR_OF_TWO)):
        ratios = [
            speed / speeds[fewer, batch]
            for (ranks, batch), speed in speeds.items()
            if ranks == more and (fewer, batch) in speeds
        ]
        if ratios:
            told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            reached = table.verdict(statistics.median(ratios) >= bar)
            print(f"- {more} ranks: {told} × the speed of {fewer} (bar {bar}: {reached})")


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
    as_measured = dict(zip(arrangements, raced, strict=True))
    steady = dict(zip(arrangements, (steadied(result, raced[0]) for result in raced), strict=True))

    def checked(found: dict[Arrangement, Result], *, seen: bool) -> list[dict]:
        alone = {batch: found[1, batch] for batch in batches if found[1, batch].turns}
        return [
            check
            for count in ranks
            for check in model_check(
                {batch: found[count, batch] for batch in batches}, alone, count, base, seen=seen
            )
        ]

    checks, unseen = checked(as_measured, seen=True), checked(steady, seen=False)
    largest = replace(base, batch=batches[-1])
    timelines = [timeline_of(count, largest, TRACED_TURNS * args.seconds) for count in ranks if count > 1]
    show(checks, unseen, timelines)
    print(f"\n{table.describe(about)}")
    if args.json:
        result = {**table.as_json(raced, base), "model": checks, "unseen": unseen, "timeline": timelines}
        Path(args.json).write_text(json.dumps({"machine": about, "scale": result}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
