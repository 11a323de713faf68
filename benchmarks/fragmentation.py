"""What TensorFlow's BFC allocator, which GPUs use, takes beside the tensors of an update. Measured on a CPU.

    python benchmarks/fragmentation.py [--json FILE]

`TF_CPU_ALLOCATOR_USE_BFC` gives the CPU device the allocator of a GPU, and `TF_CPU_BFC_MEM_LIMIT_IN_MB` its size. The
smallest size in which two real updates run is found by bisection and compared with the estimate. On a GPU other kernels run,
so other tensors lie in it; and there it takes its memory at once if it has a fixed size, here it grows in regions.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks.memory import ENVIRON, ONE_BY_ONE, Case
from distxcept.memory.estimate import estimate

MIB = 2**20
LEAST, MOST, STEP = 0.9, 1.8, 0.02
"""Sizes that are tried, as parts of the estimate."""
OUT_OF_MEMORY = ("ResourceExhausted", "OOM when allocating", "assert outcome.applied")

CASES = [
    Case(128, 16, 1.0, "sgd"),
    Case(128, 16, 1.0, "adam"),
    Case(128, 16, 1.0, "sgd", remat=True),
    Case(128, 8, 1.0, "adam", micro_steps=3),
    Case(299, 4, 1.0, "sgd"),
    Case(299, 8, 0.5, "sgd"),
]


def fits(case: Case, limit_mib: int) -> bool:
    """Whether two updates run with so much for the allocator."""
    root = Path(__file__).parents[1]
    bfc = {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib)}
    done = subprocess.run(
        [sys.executable, str(root / "benchmarks" / "memory.py"), "--child", json.dumps(asdict(case))],
        env={**os.environ, **ENVIRON, **ONE_BY_ONE, **bfc, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return True
    if any(words in done.stderr for words in OUT_OF_MEMORY):
        return False
    raise RuntimeError(f"{case} ended with {done.returncode}:\n{done.stderr[-2000:]}")


def smallest(holds: Callable[[float], bool]) -> float:
    """The smallest part of the estimate that holds, within a step."""
    low, high = LEAST, MOST
    if not holds(high):
        raise RuntimeError(f"{high} times the estimate are not enough")
    while high - low > STEP:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    print("| px | micro batch | width | optimizer | remat | estimated, MiB | allocator, MiB | margin |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    for case in CASES:
        mib = estimate(case.work()).total_bytes / MIB
        part = smallest(lambda part, case=case, mib=mib: fits(case, round(part * mib)))  # type: ignore[misc]
        steps = f" × {case.micro_steps}" if case.micro_steps > 1 else ""
        print(
            f"| {case.image_size} | {case.micro}{steps} | {case.width:g} | {case.optimizer} "
            f"| {'on' if case.remat else 'off'} | {mib:.0f} | {part * mib:.0f} | {part - 1:.0%} |",
            flush=True,
        )
        rows.append({**asdict(case), "estimated_mib": mib, "margin": part - 1})
    print(f"\nLargest margin {max(float(row['margin']) for row in rows):.0%}, each found within {STEP:.0%}.")
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
