"""A memory plan for the eye, and for other programs."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from distxcept.config.size import show_size
from distxcept.memory.candidates import Candidate
from distxcept.memory.estimate import KINDS
from distxcept.memory.liveness import Kind
from distxcept.memory.memory_plan import MemoryPlan
from distxcept.memory.planning import Proposal

BAR_WIDTH = 50
COLOURS: dict[Kind, str] = {
    "weights": "blue",
    "slots": "cyan",
    "moving_average": "bright_blue",
    "gradients": "green",
    "accumulators": "bright_green",
    "reduction": "yellow",
    "activations": "magenta",
    "workspace": "bright_magenta",
    "input": "white",
}


def as_json(plan: Proposal) -> dict[str, Any]:
    """Fields are public."""
    budget, config = plan.budget, plan.config
    return {
        "device": {
            "kind": budget.device,
            "name": budget.name,
            "memory_bytes": budget.memory_bytes,
            "own_bytes": budget.own_bytes,
            "reserve_bytes": budget.reserve_bytes,
            "limit_bytes": budget.limit_bytes,
            "margin": budget.margin,
            "usable_bytes": plan.usable_bytes,
        },
        "batch": {
            "global": plan.batches.global_batch,
            "virtual": plan.batches.virtual_batch,
            "replicas": plan.batches.replicas,
            "equation": plan.batches.equation(),
            "updates_per_epoch": plan.batches.updates_per_epoch if plan.samples_known else None,
        },
        "model": {
            "image_size": config.model.image_size,
            "width": config.model.width,
            "classes": plan.layout.classes,
            "parameters": sum(p.elements for p in plan.layout.parameters if not p.moving),
            "precision": config.precision,
            "optimizer": config.optimizer.name,
        },
        "assumptions": plan.assumptions,
        "candidates": [
            {
                "micro_batch": one.micro_batch,
                "remat": one.remat,
                "micro_steps": one.micro_steps,
                "bytes": one.estimate.kinds,
                "total_bytes": one.needed_bytes,
                "peak_phase": one.estimate.phase,
                "fits": plan.fits(one),
                "relative_speed": round(plan.relative_speed(one), 3),
                "measured": _measured_json(plan, one),
                "chosen": one is plan.chosen,
            }
            for one in plan.candidates
        ],
        "chosen": None
        if plan.chosen is None
        else {"micro_batch": plan.chosen.micro_batch, "remat": plan.chosen.remat},
        "reason": reason(plan),
        "ways_out": [
            {
                "settings": dict(way.settings),
                "changes": way.changes,
                "total_bytes": way.needed_bytes,
                "saved_bytes": way.saved_bytes,
                "fits": way.fits,
            }
            for way in plan.ways
        ],
    }


def _measured_json(plan: Proposal, one: Candidate) -> dict[str, Any] | None:
    found = plan.measured_of(one)
    if found is None:
        return None
    return {
        "fits": found.fits,
        "peak_bytes": found.peak_bytes,
        "seconds_per_update": found.seconds,
        "reason": found.reason,
    }


def reason(plan: Proposal) -> str:
    """Why this one, in a sentence."""
    if plan.measured:
        return _measured_reason(plan)
    chosen, usable = plan.chosen, show_size(plan.usable_bytes)
    if chosen is None:
        least = min(one.needed_bytes for one in plan.candidates)
        return f"nothing fits: {usable} are usable, and the smallest plan needs {show_size(least)}"
    fastest = min(plan.candidates, key=lambda one: one.relative_seconds)
    if chosen is fastest:
        larger = "the only plan, and it" if len(plan.candidates) == 1 else "the fastest plan"
        return f"{larger} fits into the usable {usable}"
    missing = show_size(fastest.needed_bytes)
    return f"the fastest plan that fits into the usable {usable}; the fastest of all needs {missing}"


def _measured_reason(plan: Proposal) -> str:
    tried = list(plan.measured.values())
    best = plan.measured_of(plan.chosen)
    if best is None:
        last = min(tried, key=lambda one: (not one.remat, one.micro_batch))
        failed = f"{MemoryPlan(last.micro_batch, last.remat)}, the smallest of {len(tried)} tried"
        return f"nothing fits into the {show_size(plan.budget.tensor_bytes)}: {failed}: {last.reason}"
    fitting = sum(one.fits for one in tried)
    of_all = f"the fastest of {fitting} that fit" if fitting > 1 else "the one that fits"
    return (
        f"measured: {of_all}, of {len(tried)} tried: peak {show_size(best.peak_bytes or 0)}, "
        f"{best.seconds or 0:.2f} s an update"
    )


def show(plan: Proposal, console: Console) -> None:
    parameters = sum(p.elements for p in plan.layout.parameters if not p.moving)
    model = plan.config.model
    console.print(
        f"Xception width {model.width:g}, {model.image_size} px, {plan.layout.classes} classes: "
        f"{parameters / 1e6:.1f} million weights; {plan.config.precision}, {plan.config.optimizer.name}"
    )
    console.print(plan.batches.equation())
    console.print(_device_line(plan))
    for assumption in plan.assumptions:
        console.print(f"assumed: {assumption}", style="yellow")
    console.print(_table(plan))
    if plan.measured:
        own = "of the whole process" if plan.budget.device == "cpu" else "of TensorFlow's allocator"
        console.print(f"* measured, the peak {own}; the rest is estimated")
    if plan.chosen is not None:
        console.print(reason(plan), style="bold green")
    shown = plan.chosen or min(plan.candidates, key=lambda one: one.needed_bytes)
    _show_bars(plan, shown, console)


def _device_line(plan: Proposal) -> str:
    budget = plan.budget
    whose = "CUDA and its libraries" if budget.device == "gpu" else "TensorFlow itself"
    parts = [f"{show_size(budget.own_bytes)} for {whose}"]
    if budget.reserve_bytes:
        parts.append(f"{show_size(budget.reserve_bytes)} reserve")
    parts.append(f"a margin of {budget.margin:.0%}{' for the allocator' * (budget.device == 'gpu')}")
    limit = "" if budget.limit_bytes is None else f", memory.limit {show_size(budget.limit_bytes)}"
    return f"{budget.name}{limit}; less {', '.join(parts)}: {show_size(plan.usable_bytes)} for tensors"


COLUMNS: dict[str, tuple[Kind, ...]] = {
    "state": ("weights", "slots", "moving_average"),
    "grads": ("gradients", "accumulators"),
    "reduce": ("reduction",),
    "activations": ("activations",),
    "work": ("workspace",),
    "input": ("input",),
}


def _table(plan: Proposal) -> Table:
    """Sizes in MiB without their unit: with it the table would not fit on a narrow screen.

    Nor would what was measured beside the parts of the estimate, so it takes their place.
    """
    table = Table(box=None, pad_edge=False, collapse_padding=True, padding=(0, 1), header_style="bold")
    rows = [_table_row(plan, one) for one in shown_candidates(plan)]
    # A column without a single byte only takes room.
    names = [name for name in rows[0] if any(row[name] not in ("0", "") for row in rows)]
    for name in names:
        table.add_column(name, justify="right")
    for one, row in zip(shown_candidates(plan), rows, strict=True):
        style = "bold green" if one is plan.chosen else None if plan.fits(one) else "dim"
        table.add_row(*(row[name] for name in names), style=style)
    return table


def _table_row(plan: Proposal, one: Candidate) -> dict[str, str]:
    def mib(size: int) -> str:
        return f"{size / 2**20:.0f}"

    parts = {
        f"\n{name}": mib(sum(one.estimate.kinds[kind] for kind in kinds)) for name, kinds in COLUMNS.items()
    }
    found = plan.measured_of(one)
    fits = "chosen" if one is plan.chosen else "yes" if plan.fits(one) else "no"
    return {
        "micro\nbatch": str(one.micro_batch),
        "\nremat": "on" if one.remat else "off",
        "micro\nsteps": str(one.micro_steps),
        **({} if plan.measured else parts),
        "total\nMiB": mib(one.needed_bytes),
        "measured\npeak": mib(found.peak_bytes) if found and found.peak_bytes else "",
        "seconds\nan update": f"{found.seconds:.2f}" if found and found.seconds else "",
        "\nfits": f"{fits}*" if found else fits,
        "\nspeed": f"{plan.relative_speed(one):.0%}",
    }


def shown_candidates(plan: Proposal) -> list[Candidate]:
    """With many micro batches: halvings, what is chosen or was tried, and its larger neighbours, which just do not fit."""
    shown = []
    for remat in (False, True):
        of_kind = [one for one in plan.candidates if one.remat == remat]
        least = 0
        for number, one in enumerate(of_kind):
            below = of_kind[number + 1] if number + 1 < len(of_kind) else None
            tried = one is plan.chosen or plan.measured_of(one) is not None
            near = tried or (below is not None and plan.fits(below) and not plan.fits(one))
            if one.micro_steps >= least or near or below is None:
                shown.append(one)
                least = max(least, 2 * one.micro_steps)
    return shown


def _show_bars(plan: Proposal, candidate: Candidate, console: Console) -> None:
    """Where the memory goes: one bar for each kind, all on the scale of the device."""
    budget = plan.budget
    remat = ", rematerialised" if candidate.remat else ""
    estimated = "by the estimate, " if plan.measured else ""
    console.print(
        f"\n{estimated}at the peak ({candidate.estimate.phase}) of micro batch {candidate.micro_batch}{remat}:"
    )
    own = "TensorFlow itself" if budget.device == "cpu" else "CUDA, libraries"
    rows = [(KINDS[kind], size, COLOURS[kind]) for kind, size in candidate.estimate.kinds.items() if size]
    rows.append((f"margin of {budget.margin:.0%}", round(candidate.needed_bytes * budget.margin), "yellow"))
    rows.append((own, budget.own_bytes, "red"))
    outside = budget.own_bytes if budget.device == "gpu" else 0  # a limit on a GPU is that of the allocator
    limit = budget.memory_bytes if budget.limit_bytes is None else budget.limit_bytes + outside
    most = min(budget.memory_bytes, limit)
    left = most - sum(size for _, size, _ in rows)
    rows.append(("left" if left >= 0 else "missing", abs(left), "bright_black" if left >= 0 else "bold red"))
    whole = max(most, sum(size for name, size, _ in rows if name != "missing"))
    for name, size, colour in rows:
        bar = _bar(size / whole)
        console.print(Text.assemble(f"  {name:<18}{show_size(size):>10}  ", (bar, colour)))


def _bar(part: float) -> str:
    eighths = round(part * BAR_WIDTH * 8)
    return "█" * (eighths // 8) + ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8] or "▏"


def show_ways(plan: Proposal, console: Console) -> None:
    if not plan.ways:
        return
    console.print("\nways out:", style="bold")
    for way in plan.ways:
        fits = "fits" if way.fits else "not enough alone" if way.changes != "all of this" else "not enough"
        console.print(
            Text.assemble("  ", (way.overrides, "bold"), f"   {show_size(way.needed_bytes)}, {fits}")
        )
        what = (
            "the training stays the same" if way.changes is None else f"changes the training: {way.changes}"
        )
        console.print(f"      saves {show_size(way.saved_bytes)}; {what}")
    console.print(
        "  more devices alone do not help: a micro step already runs one virtual batch, and cannot run less"
    )
