"""`distxcept train …` whose second update finds too little memory: `starved_train.py train CONFIG …`.

Only this process is starved. If the command line starts itself anew, that process has all the memory it wants.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS / "integration" / "equivalence"), str(TESTS)]


def train() -> int:
    from starving import starving

    from distxcept.cli.main import main

    with starving({2: 0}, rank=0):
        return main(sys.argv[1:])


sys.exit(train())
