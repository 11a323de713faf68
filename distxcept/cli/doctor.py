"""`distxcept doctor`: is this machine ready to train, and if not, why and what helps."""

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distxcept.doctor import Finding

EXAMPLES = """\
examples:
  distxcept doctor                 everything: packages, TensorFlow, GPUs, MPI, Horovod, SLURM, the machine
  distxcept doctor -q              warnings and problems only
  distxcept doctor --json          for programs; the same findings with their figures
  srun -N1 distxcept doctor        what a compute node has (it may differ from the login node)

Values of environment variables are shown for a fixed list of names only. exit codes: 0 no problem · 1 a problem
"""

STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "is this machine ready, and if not, why"
    parser = subparsers.add_parser(
        "doctor",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    parser.add_argument("--json", action="store_true", help="the findings as JSON")
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long TensorFlow may take to load (default 60)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from distxcept.doctor import examine, worst_status

    start = time.monotonic()
    findings = examine(timeout_seconds=args.timeout)
    seconds = time.monotonic() - start
    status = worst_status(findings)
    if args.json:
        print(json.dumps(_as_json(findings, status, seconds), indent=1))
    else:
        _print(findings, quiet=args.quiet, seconds=seconds)
    return 1 if status == "problem" else 0


def _as_json(findings: "list[Finding]", status: str, seconds: float) -> dict[str, Any]:
    return {
        "status": status,
        "seconds": round(seconds, 1),
        "findings": [
            {
                "area": one.area,
                "status": one.status,
                "text": one.text,
                "remedy": one.remedy,
                "data": dict(one.data),
            }
            for one in findings
        ],
    }


def _print(findings: "list[Finding]", quiet: bool, seconds: float) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    area = None
    for one in findings:
        if quiet and one.status == "ok":
            continue
        if one.area != area:
            area = one.area
            console.print(Text(area, style="bold"))
        console.print(Text.assemble("  ", (f"{one.status:<8}", STYLES[one.status]), " ", one.text))
        if one.remedy is not None and one.status != "ok":
            console.print(Text(f"           → {one.remedy}", style="cyan"))
    problems, warnings = (sum(one.status == kind for one in findings) for kind in ("problem", "warning"))
    summary = f"{_count(problems, 'problem')}, {_count(warnings, 'warning')}, {seconds:.1f} s"
    console.print(Text(summary, style=STYLES["problem" if problems else "warning" if warnings else "ok"]))


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
