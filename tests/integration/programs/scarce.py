"""`distxcept` with a rank that runs out of memory: `scarce.py RANK UPDATE FULL_MICRO SPARE_BYTES launch …`.

The launcher is the real one; each rank that it starts is this program again, with `rank` in place of `launch`.
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS / "integration" / "equivalence"), str(TESTS)]
scarcity, role = sys.argv[1:5], sys.argv[5]


def launch() -> None:
    from distxcept.cli.main import entry
    from distxcept.launch.ranks import Program

    real = Program.arguments

    def arguments(self, *, resume_auto):
        python, _, module, *rest = real(self, resume_auto=resume_auto)
        assert module == "distxcept.cli.rank"
        return [python, os.path.abspath(__file__), *scarcity, "rank", *rest]

    Program.arguments = arguments
    sys.argv = ["distxcept", *sys.argv[5:]]
    entry()


def rank() -> None:
    from distxcept.cli import train
    from distxcept.cli.rank import main

    real = train._build

    def build(args, config, engine, *more):
        """Here TensorFlow has been imported, in the way that the command does it."""
        from starving import scarce

        hungry, update, full_micro, spare_bytes = map(int, scarcity)
        if engine.rank == hungry:
            patches.enter_context(scarce(update, full_micro, spare_bytes))
        return real(args, config, engine, *more)

    train._build = build
    with ExitStack() as patches:
        main(sys.argv[6:])


if __name__ == "__main__":
    {"launch": launch, "rank": rank}[role]()
