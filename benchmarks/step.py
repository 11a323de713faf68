"""One update of Xception, side by side: this package, Keras, hand-written loops, PyTorch, in 1 process and in 2 ranks.

    python benchmarks/step.py                                  everything at 299 px batch 8 and 128 px batch 16: an hour
    python benchmarks/step.py --sizes 299x8 --only loop,torch-eager
    python benchmarks/step.py --sizes 299x8 --micro-steps 4 --only ours-ranks      ranks exchange gradients every 4 batches
    python benchmarks/step.py --torch-python /path/to/python   a Python that has PyTorch, if this one has not
    python benchmarks/step.py --variant TF_NUM_INTEROP_THREADS=1 --variant engine.threads=1    ours with one thing changed
    python benchmarks/step.py --only ours-ranks --variant ours-ranks:engine.overlap=off        another of ours, changed

A variant in capitals is a variable of the environment, else a key of the config. Float32, SGD with momentum, 1000 classes;
all cores that this process may use (`taskset -c 0,1 python benchmarks/step.py`). The table goes to stdout, how it goes to
stderr.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from distxcept.prove.race import contestants as ready_made
from distxcept.prove.race import table
from distxcept.prove.race.contestants import STOCK, WITH_ONEDNN, in_ranks
from distxcept.prove.race.setting import Setting
from distxcept.prove.race.turns import Contestant, Result, say, take_turns

HERE = Path(__file__).parent / "contestants"
RANKS = 2
SAME_BATCH = ("ours", "ours-two-split", "ours-ranks-split")
OURS = (*SAME_BATCH, "ours-two", "ours-ranks")
FITS = ("fit-off", "fit-on", "fit-auto")
BARS = (  # whom ours is compared with, which of ours, with which of theirs, least ratio, where it counts
    ("the best keras fit in its stock environment, the same batch", SAME_BATCH, FITS, 1.3, None),
    ("the best keras fit in its stock environment, any batch", OURS, (*FITS, "fit-double"), 1.3, None),
    ("keras fit in the stock environment of other processors", SAME_BATCH, ("fit-plain",), 1.3, None),
    (
        "the hand-written loop in our environment, one batch at a time",
        ("ours",),
        ("loop-onednn",),
        0.98,
        None,
    ),
    (
        "PyTorch's best",
        OURS,
        ("torch-eager", "torch-compile", "torch-ranks", "torch-compile-ranks"),
        1.0,
        299,
    ),
)


def all_contestants(torch_python: str) -> dict[str, Contestant]:
    """By the word that chooses them; the first is the reference."""
    horovod_loop = in_ranks(RANKS, (sys.executable, str(HERE / "horovod_loop.py")))
    torch = (torch_python, str(HERE / "torch_xception.py"))
    return {
        "ours": ready_made.ours(),
        "ours-stock": ready_made.ours_stock(),
        "fit-off": ready_made.keras_fit("off"),
        "fit-on": ready_made.keras_fit("on"),
        "fit-auto": ready_made.keras_fit("auto"),
        "fit-onednn": ready_made.keras_fit("off", onednn=True),
        "fit-plain": ready_made.keras_fit("off", onednn=False),
        "fit-double": replace(
            ready_made.keras_fit("off"), name="keras fit, twice the batch", about="stock environment"
        ),
        "loop": ready_made.loop(),
        "loop-onednn": ready_made.loop(onednn=True),
        "ours-two": ready_made.ours_side_by_side(RANKS),
        "ours-two-split": ready_made.ours_side_by_side(RANKS, "split"),
        "ours-bare": ready_made.ours_bare(RANKS),
        "ours-ranks": ready_made.ours_in_ranks(RANKS, "each"),
        "ours-ranks-split": ready_made.ours_in_ranks(RANKS, "split"),
        "horovod-loop": Contestant(
            f"hand-written Horovod loop, {RANKS} ranks", horovod_loop, WITH_ONEDNN, "each rank has the batch"
        ),
        "horovod-loop-calm": Contestant(
            f"hand-written Horovod loop, {RANKS} ranks, waiting as ours does", horovod_loop,
            {**WITH_ONEDNN, "HOROVOD_CYCLE_TIME": "5", "OMPI_MCA_mpi_yield_when_idle": "1"}, "each rank has the batch",
        ),
        "torch-eager": Contestant("PyTorch eager, channels last", (*torch, "eager"), STOCK),
        "torch-compile": Contestant("PyTorch torch.compile, channels last", (*torch, "compile"), STOCK),
        "torch-ranks": Contestant(
            f"PyTorch eager, {RANKS} processes", (*torch, "eager", "--processes", str(RANKS)), STOCK,
            "gradients averaged by gloo; each process has the batch",
        ),
        "torch-compile-ranks": Contestant(
            f"PyTorch torch.compile, {RANKS} processes", (*torch, "compile", "--processes", str(RANKS)), STOCK,
            "gradients averaged by gloo; each process has the batch",
        ),
    }  # fmt: skip


def chosen(args: argparse.Namespace) -> dict[str, Contestant]:
    every = all_contestants(args.torch_python)
    words = args.only.split(",") if args.only else list(every)
    unknown = [word for word in words if word not in every]
    if unknown:
        sys.exit(f"--only: {', '.join(unknown)}; there are {', '.join(every)}")
    found = {"ours": every["ours"], **{word: every[word] for word in words}}
    found |= {variant: variant_of(every, variant) for variant in args.variant}
    for reason, needing in why_not(args.torch_python).items():
        for word in [word for word in found if word.partition(":")[0] in needing]:
            say(f"left out: {found.pop(word).name}: {reason}")
    return found


def why_not(torch_python: str) -> dict[str, tuple[str, ...]]:
    reasons: dict[str, tuple[str, ...]] = {}
    if no_ranks := ready_made.why_no_ranks():
        reasons[no_ranks] = (
            "ours-bare",
            "ours-ranks",
            "ours-ranks-split",
            "horovod-loop",
            "horovod-loop-calm",
        )
    needed = "import torch, pydantic, yaml, psutil"
    has_torch = subprocess.run([torch_python, "-c", needed], capture_output=True, check=False)
    if has_torch.returncode:
        reasons[f"{torch_python} cannot {needed} (--torch-python names one that can)"] = (
            "torch-eager",
            "torch-compile",
            "torch-ranks",
            "torch-compile-ranks",
        )
    return reasons


def variant_of(every: dict[str, Contestant], variant: str) -> Contestant:
    name, separator, value = variant.partition("=")
    word, _, key = name.rpartition(":")
    ours = {own: one for own, one in every.items() if own.startswith("ours")}
    if not separator or not key or (word and word not in ours):
        sys.exit(
            f"--variant {variant!r}: write it like NAME=VALUE or WORD:NAME=VALUE; WORD is one of {', '.join(ours)}"
        )
    base = ours[word or "ours"]
    title = f"{base.name} with {key}={value}"
    if key.isupper():
        return replace(base, name=title, environ={**base.environ, key: value}, about="")
    return replace(base, name=title, command=(*base.command, f"{key}={value}"), about="")


def verdicts(results: dict[str, Result], image_size: int) -> list[str]:
    """Each bar: our best arrangement against the best of theirs, medians of ratios within rounds."""
    lines = []

    def best(words: Sequence[str]) -> float:
        ran = [results[word] for word in words if word in results and results[word].ratios]
        return max((one.ratio.median for one in ran), default=0.0)

    for name, mine, theirs, bar, only_size in BARS:
        if not best(theirs) or not best(mine) or only_size not in (None, image_size):
            continue
        ratio = best(mine) / best(theirs)
        reached = table.verdict(ratio >= bar)
        lines.append(f"{ratio:.2f} × {name} (bar {bar:g}: {reached})")
    if "ours-ranks" in results and results["ours-ranks"].ratios:
        ratio = results["ours-ranks"].ratio.median
        bare = results.get("ours-bare")
        limit = f"; {bare.ratio.median:.2f} if nothing is exchanged" if bare and bare.ratios else ""
        lines.append(f"{RANKS} ranks: {ratio:.2f} × one process (bar 1.1 at 299 px{limit})")
    return lines


def batch_of(setting: Setting, double: Contestant | None, one: Contestant) -> Setting:
    return replace(setting, batch=2 * setting.batch) if one is double else setting


def parse_sizes(text: str) -> list[tuple[int, int]]:
    pairs = (one.split("x") for one in text.split(","))
    return [(int(image_size), int(batch)) for image_size, batch in pairs]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", type=parse_sizes, default="299x8,128x16", help="pixels x batch (299x8,128x16)"
    )
    parser.add_argument(
        "--micro-steps", type=int, default=1, metavar="K", help="of an update, each with the whole batch (1)"
    )
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--only", help="comma-separated words; ours is always there")
    parser.add_argument("--variant", action="append", default=[], metavar="[WORD:]NAME=VALUE")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a turn, about")
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    args = parser.parse_args(argv)
    if args.micro_steps < 1:
        parser.error(f"--micro-steps {args.micro_steps}: an update has at least one")
    about, found = table.machine(), []
    contestants = chosen(args)
    double = contestants.get("fit-double")
    for size, batch in args.sizes:
        setting = Setting(size, batch, args.micro_steps, args.width)
        results = take_turns(
            list(contestants.values()),
            partial(batch_of, setting, double),
            rounds=args.rounds,
            turn_seconds=args.seconds,
            notice=say,
        )
        said = verdicts(dict(zip(contestants, results, strict=True)), size)
        found.append({**table.as_json(results, setting), "verdicts": said})
        print(table.markdown(results, f"One update, {setting}"))
        print("\n" + "\n".join(f"- {line}" for line in said) + "\n", flush=True)
    print(table.describe(about))
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": about, "step": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
