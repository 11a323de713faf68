"""The predicted speed on many devices, for the eye and for other programs."""

from typing import Any

from rich.console import Console
from rich.table import Table

from distxcept.memory.worlds import Scaling


def scaling_json(scaling: Scaling) -> dict[str, Any]:
    """Fields are public."""
    network = scaling.network
    return {
        "network": {
            "per_node": network.per_node,
            "algorithm": network.algorithm,
            **{
                place: {
                    "name": link.name,
                    "bytes_per_second": link.bytes_per_second,
                    "latency_seconds": link.latency_seconds,
                }
                for place, link in (("inside", network.inside), ("between", network.between))
            },
        },
        "assumptions": scaling.assumptions,
        "worlds": [
            {
                "world": row.world,
                "samples": row.samples,
                "seconds_per_update": row.seconds,
                "compute_seconds": row.compute_seconds,
                "waiting_seconds": row.waiting_seconds,
                "reduction_seconds": row.reduction_seconds,
                "exposed_seconds": row.exposed_seconds,
                "idle_part": row.idle_part,
                "images_per_second": scaling.images_per_second(row),
                "efficiency": scaling.efficiency(row),
            }
            for row in scaling.rows
        ],
        "limits": scaling.limits,
    }


def show_scaling(scaling: Scaling, console: Console, world: int | None) -> None:
    console.print("\npredicted speed, not measured:", style="bold")
    for assumption in scaling.assumptions:
        console.print(f"assumed: {assumption}", style="yellow")
    table = Table(box=None, pad_edge=False, collapse_padding=True, padding=(0, 1), header_style="bold")
    for name in ("devices", "samples\neach", "update\nms", "compute\nms", "slowest\nms", "reduce\nms",
                 "exposed\nms", "idle", "images/s", "efficiency"):  # fmt: skip
        table.add_column(name, justify="right")
    for row in scaling.rows:
        parts = (
            row.seconds,
            row.compute_seconds,
            row.waiting_seconds,
            row.reduction_seconds,
            row.exposed_seconds,
        )
        table.add_row(
            str(row.world),
            str(row.samples),
            *(_milliseconds(seconds) for seconds in parts),
            f"{row.idle_part:.0%}",
            f"{scaling.images_per_second(row):,.0f}",
            f"{scaling.efficiency(row):.0%}",
            style="bold green" if row.world == world else None,
        )
    console.print(table)
    for limit in scaling.limits:
        console.print(limit)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f}" if seconds >= 0.01 else f"{seconds * 1e3:.1f}"
