"""Gradient accumulation: images/s and peak memory against the number of micro steps, side by side with Keras'.

    python benchmarks/accumulate.py                      k = 1, 2, 4 … 32 at 128 px, micro batch 4
    python benchmarks/accumulate.py --steps 1,8,32 --image-size 299 --batch 2

For each k: ours (one update of k micro steps), `keras.Model.fit` with `gradient_accumulation_steps=k`, and the naive loop
that changes the weights after every micro batch. Ratios are to ours with k = 1, in the same round.

Memory is measured on its own, with glibc's thresholds fixed: by default they move while a program runs, and the same step
peaks here or there. No two micro steps peak alike (operations run in whatever order they become ready), and a process
keeps what it once had, so the peak creeps upwards from one micro step to the next; so each k is read after the same
number of micro steps from its start. What it keeps is TensorFlow's pool for oneDNN, in which freed blocks of many sizes lie
between others. So ours is also measured without that pool (`TF_ONEDNN_USE_SYSTEM_ALLOCATOR`), which is slow, and shows what
the operations hold at once.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from distxcept.prove.race import contestants as ready_made
from distxcept.prove.race import table
from distxcept.prove.race.contestants import NO_POOL, STEADY_MALLOC
from distxcept.prove.race.serve import UPDATES_AT_START
from distxcept.prove.race.setting import Setting
from distxcept.prove.race.turns import Contestant, ContestantFailed, Racing, Result, say, take_turns

SPEED_BAR, GROWTH_BAR = 0.98, 1.02
WATCHED = 256
"""Micro steps from the start until the peak memory is read."""


def contestants(steps: list[int], keras: bool) -> dict[str, tuple[Contestant, int]]:
    found = {}
    for k in steps:
        found[f"ours {k}"] = (replace(ready_made.ours(), name=f"distxcept, k = {k}", about="one update"), k)
    for k in steps if keras else []:
        fit = ready_made.keras_fit("off", onednn=True, accumulate=True)
        found[f"fit {k}"] = (replace(fit, name=f"keras fit, k = {k}", about="gradient_accumulation_steps"), k)
    if keras:
        naive = replace(
            ready_made.loop(onednn=True), name="naive loop", about="the weights change every batch"
        )
        found["naive"] = (naive, steps[-1])
    return found


def updates_to_watch(micro_steps: int, k: int) -> int:
    """Until so many micro steps have run, with those of the warm-up."""
    return -(-micro_steps // k) - UPDATES_AT_START


def measure_memory(
    contestant: Contestant, setting: Setting, steps: int, environ: Mapping[str, str] = STEADY_MALLOC
) -> Result:
    """One turn of so many steps, with nobody else in memory."""
    steady = replace(contestant, environ={**contestant.environ, **environ})
    result, racing = Result(steady), Racing(steady, setting)
    try:
        result.start = racing.ready()
        result.turns.append(racing.run(steps, result.start["images"]))
    except ContestantFailed as failure:
        result.failure = str(failure)
    finally:
        racing.stop()
    return result


def verdicts(
    results: dict[str, Result], memory: dict[str, Result], held: dict[str, Result], steps: list[int]
) -> list[str]:
    lines = []
    eight = results.get("ours 8")
    if eight and eight.ratios:
        ratio = eight.ratio.median
        lines.append(
            f"k = 8: {ratio:.3f} × the speed of k = 1 (bar {SPEED_BAR}: {table.verdict(ratio >= SPEED_BAR)})"
        )
    for what, of in (("memory", memory), ("memory that operations hold at once", held)):
        several = [k for k in steps if k > 1 and f"ours {k}" in of and of[f"ours {k}"].turns]
        if len(several) > 1:
            first, last = (of[f"ours {k}"].peak_bytes for k in (several[0], several[-1]))
            lines.append(
                f"{what}, from k = {several[0]} to {several[-1]}: {last / first:.3f} × (bar {GROWTH_BAR}: "
                f"{table.verdict(last / first <= GROWTH_BAR)})"
            )
    return lines


def parsed(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[int]]:
    """The arguments, and of them the numbers of micro steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", default="1,2,4,8,16,32", help="numbers of micro steps, ascending from 1")
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4, help="of one micro step")
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a turn, about")
    parser.add_argument(
        "--watched", type=int, default=WATCHED, help="micro steps after which memory is read, for each k"
    )
    parser.add_argument("--no-keras", action="store_true", help="ours only")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args(argv)
    steps = [int(k) for k in args.steps.split(",")]
    if steps != sorted(steps) or steps[0] != 1:
        parser.error("--steps ascend from 1, which all others are compared with")
    if updates_to_watch(args.watched, steps[-1]) < 1:
        least = (UPDATES_AT_START + 1) * steps[-1]
        parser.error(
            f"--watched {args.watched}: {steps[-1]} micro steps an update and the warm-up need at least {least}"
        )
    return args, steps


def main(argv: Sequence[str] | None = None) -> int:
    args, steps = parsed(argv)
    chosen = contestants(steps, not args.no_keras)
    number_of = {contestant.name: k for contestant, k in chosen.values()}
    base = Setting(args.image_size, args.batch, width=args.width)
    about = table.machine()

    def setting_of(contestant: Contestant) -> Setting:
        return replace(base, micro_steps=number_of[contestant.name])

    results = take_turns(
        [contestant for contestant, _ in chosen.values()],
        setting_of,
        rounds=args.rounds,
        turn_seconds=args.seconds,
        notice=say,
    )
    memory = []
    for contestant, k in chosen.values():
        say(f"memory, with glibc's thresholds fixed: {contestant.name}")
        memory.append(measure_memory(contestant, setting_of(contestant), updates_to_watch(args.watched, k)))
    held = {}
    for word, (contestant, k) in chosen.items():
        if word in {f"ours {k}" for k in steps if k > 1}:
            say(f"memory, without TensorFlow's pool: {contestant.name}")
            updates = updates_to_watch(args.watched, k)
            held[word] = measure_memory(contestant, setting_of(contestant), updates, NO_POOL)
    said = verdicts(
        dict(zip(chosen, results, strict=True)), dict(zip(chosen, memory, strict=True)), held, steps
    )
    print(table.markdown(results, f"Gradient accumulation, {base}, k micro steps"))
    print(table.markdown(memory, "The same with glibc's thresholds fixed: for its memory, not its speed"))
    print(table.markdown(list(held.values()), "Without TensorFlow's pool: what the operations hold at once"))
    print("\n" + "\n".join(f"- {line}" for line in said) + f"\n\n{table.describe(about)}")
    if args.json:
        of_memory = table.as_json(memory, base)["contestants"]
        without_pool = table.as_json(list(held.values()), base)["contestants"]
        measured = {
            **table.as_json(results, base),
            "memory": of_memory,
            "held": without_pool,
            "verdicts": said,
        }
        found = {"machine": about, "accumulate": measured}
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
