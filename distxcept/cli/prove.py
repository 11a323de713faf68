"""`distxcept prove`: do the documented guarantees hold on this machine, and how fast is it."""

import argparse
from typing import TYPE_CHECKING, Any

from distxcept.cli.arguments import positive_number

if TYPE_CHECKING:
    from pathlib import Path

    from distxcept.prove.machine import Machine
    from distxcept.prove.rows import Report

SECTIONS = ("environment", "audit", "equality", "recovery", "memory", "speed", "links")
DEFAULT_OUTPUT = "prove"
MINUTES_QUICK, MINUTES_FULL = 3, 15

EXAMPLES = """\
sections:
  environment   what distxcept doctor finds
  audit         the traced update: kernels, copies between devices, number of operations
  equality      equal weights on 1 to N devices, in micro steps, in Horovod ranks, on GPU and CPU, and when repeated
  recovery      out of memory on purpose: the training continues in smaller steps, to the same weights
  memory        the estimate against measurement; 20 updates with the largest plan that is accepted
  speed         images/s against Keras fit and a hand-written loop, by precision and jit; time of each phase of an update
  links         GB/s of a reduction over the devices, and what joins them

examples:
  distxcept prove                                  all GPUs, or 2 logical CPUs without a GPU; at most 15 minutes
  distxcept prove --quick --devices 2              at most 3 minutes
  distxcept prove --only equality,recovery --json > proof.json
  distxcept prove --minutes 40                     on a slow machine
  CUDA_VISIBLE_DEVICES=2,3 distxcept prove         these two cards
  CUDA_VISIBLE_DEVICES=-1 distxcept prove          the CPU of a machine with GPUs

Writes prove/prove.json and prove/prove.html; attach the latter to an issue. Nothing else may use the devices meanwhile.
When the minutes are over, figures that are left are skipped, and a guarantee that is left counts as failed.
exit codes: 0 every guarantee that was checked holds · 1 a guarantee does not hold or could not be checked · 2 usage ·
4 too little free memory · 130 interrupted, with what was found until then in the files
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    summary = "check on this machine that every documented guarantee holds, and measure its speed"
    parser = subparsers.add_parser(
        "prove",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        parents=[common],
    )
    parser.add_argument(
        "--devices",
        type=positive_number,
        metavar="N",
        help="the first N GPUs, or N logical CPUs (all GPUs, or 2 CPUs)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller models, fewer variants: at most 3 minutes"
    )
    parser.add_argument(
        "--minutes",
        type=positive_number,
        metavar="M",
        help=f"end after M minutes ({MINUTES_FULL}, with --quick {MINUTES_QUICK})",
    )
    parser.add_argument("--only", type=section_names, metavar="A,B", help="these sections only")
    parser.add_argument(
        "--output", default=DEFAULT_OUTPUT, metavar="DIR", help=f"folder for the report ({DEFAULT_OUTPUT})"
    )
    parser.add_argument("--json", action="store_true", help="print prove.json on stdout instead of the table")
    parser.set_defaults(run=run)


def section_names(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in SECTIONS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(
            f"{(unknown or [text])[0][:40]!r} is no section; there are {', '.join(SECTIONS)}"
        )
    return tuple(name for name in SECTIONS if name in names)


def run(args: argparse.Namespace) -> int:
    import json
    import signal
    import sys
    import time

    from rich.console import Console

    from distxcept.cli.proof_progress import proof_progress
    from distxcept.prove import page
    from distxcept.prove.machine import find_machine, other_users

    minutes = args.minutes or (MINUTES_QUICK if args.quick else MINUTES_FULL)
    deadline = time.monotonic() + 60 * minutes
    output = make_output(args.output)
    machine = find_machine(args.devices, quick=args.quick)
    names = args.only or SECTIONS
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # ends the children and keeps what was found, too
    messages = Console(stderr=True, quiet=args.quiet)
    limit = f"at most {minutes} minute{'s' * (minutes > 1)}"
    messages.print(f"proving {machine}, {limit}: {', '.join(names)}", highlight=False)
    for user in other_users(machine.cards):
        messages.print(f"warning: {user}", highlight=False, markup=False, soft_wrap=True)
    report = prove(machine, args.quick, output, names, proof_progress(messages), minutes, deadline)
    write(report, output)
    if args.json:
        print(json.dumps(report.as_json(), indent=1))
        for row in report.broken:
            print(f"{row.status}: {row}", file=sys.stderr)
    else:
        page.show(report, Console(highlight=False))
    messages.print(
        f"report: {output / 'prove.html'}, {output / 'prove.json'}", highlight=False, soft_wrap=True
    )
    return report.exit_code


def prove(
    machine: "Machine",
    quick: bool,
    output: "Path",
    names: Any,
    progress: Any,
    minutes: int,
    deadline: float,
) -> "Report":
    """Runs the sections in a scratch folder below `output`, which stays if something is broken."""
    import shutil
    import tempfile
    import time
    from dataclasses import replace
    from pathlib import Path

    from distxcept.prove.environment import devices
    from distxcept.prove.proof import Proof
    from distxcept.prove.race.table import machine as about_machine

    began = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="work-", dir=output))
    about = {
        "quick": quick,
        "minutes": minutes,
        "sections": list(names),
        "devices": devices(machine),
        "machine": about_machine(),
    }
    with progress:
        report = Proof(machine, quick, scratch, progress, about, deadline=deadline).run(names)
    report = replace(report, about={**about, "total_seconds": round(time.monotonic() - began, 1)})
    logs = output / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    shutil.move(scratch / "logs", logs)
    if not report.broken:
        shutil.rmtree(scratch, ignore_errors=True)
    return report


def make_output(name: str) -> "Path":
    import os
    from pathlib import Path

    from distxcept.errors import ConfigError

    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--output: {folder} cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"--output: {folder} cannot be written to")
    return folder


def write(report: "Report", output: "Path") -> None:
    import json

    from distxcept.prove import page
    from distxcept.report.html import write_page

    write_page(output / "prove.json", json.dumps(report.as_json(), indent=1) + "\n")
    write_page(output / "prove.html", page.html(report))
