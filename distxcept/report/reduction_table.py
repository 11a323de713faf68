"""What the devices of a job exchange, for the eye and for other programs."""

from typing import Any

from rich.console import Console
from rich.table import Table

from distxcept.memory.reduction import Reduction


def as_json(reduction: Reduction) -> dict[str, Any]:
    """Fields are public."""
    network = reduction.network
    links = {
        place: {
            "name": link.name,
            "bytes_per_second": link.bytes_per_second,
            "latency_seconds": link.latency_seconds,
        }
        for place, link in (("inside", network.inside), ("between", network.between))
    }
    return {
        "network": {"per_node": network.per_node, "algorithm": network.algorithm, **links},
        "gradient_bytes": reduction.gradient_bytes,
        "worlds": [
            {
                "world": row.world,
                "samples": row.samples,
                "idle_part": row.idle_part,
                "reduction_seconds": row.seconds,
            }
            for row in reduction.rows
        ],
        "limit": reduction.limit,
    }


def show(reduction: Reduction, console: Console, world: int | None) -> None:
    console.print(
        f"\nreduction: {reduction.gradient_bytes / 1e6:.0f} MB of gradients an update", style="bold"
    )
    console.print(f"assumed: links: {reduction.network}", style="yellow")
    table = Table(box=None, pad_edge=False, collapse_padding=True, padding=(0, 1), header_style="bold")
    for name in ("devices", "samples\neach", "\nidle", "on the links\nms"):
        table.add_column(name, justify="right")
    for row in reduction.rows:
        table.add_row(
            str(row.world),
            str(row.samples),
            f"{row.idle_part:.0%}",
            _milliseconds(row.seconds),
            style="bold green" if row.world == world else None,
        )
    console.print(table)
    if reduction.limit:
        console.print(reduction.limit)
    console.print(
        "This is no speed of the job: the backward pass hides part of it; hosts, input and the slowest device add to it."
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f}" if seconds >= 0.01 else f"{seconds * 1e3:.1f}"
