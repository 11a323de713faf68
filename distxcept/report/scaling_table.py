"""The predicted speed on many devices, for the eye and for other programs."""

from typing import Any

from rich.console import Console
from rich.table import Table

from distxcept.memory.links import Network
from distxcept.memory.worlds import Reduction, Scaling


def scaling_json(scaling: Scaling) -> dict[str, Any]:
    """Fields are public."""
    return {
        "network": _network_json(scaling.network),
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


def reduction_json(reduction: Reduction) -> dict[str, Any]:
    """Fields are public."""
    return {
        "network": _network_json(reduction.network),
        "world": reduction.world,
        "gradient_bytes": reduction.gradient_bytes,
        "reduction_seconds": reduction.seconds,
        "assumptions": reduction.assumptions,
        "by_speed": [
            {
                "device_images_per_second": speed,
                "seconds_per_update": row.seconds,
                "exposed_seconds": row.exposed_seconds,
                "images_per_second": scaling.images_per_second(row),
                "efficiency": scaling.efficiency(row),
            }
            for speed, (scaling, row) in reduction.by_speed.items()
        ],
    }


def _network_json(network: Network) -> dict[str, Any]:
    return {
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
    }


def show_reduction(reduction: Reduction, console: Console) -> None:
    world = reduction.world
    console.print(
        f"\ngradients of {reduction.gradient_bytes / 1e6:.0f} MB take {_milliseconds(reduction.seconds)} ms between {world} "
        "devices"
    )
    for assumption in reduction.assumptions:
        console.print(f"assumed: {assumption}", style="yellow")
    table = _table(
        "one device\nimages/s", "update\nms", "exposed\nms", f"{world} devices\nimages/s", "efficiency"
    )
    for speed, (scaling, row) in reduction.by_speed.items():
        table.add_row(
            f"{speed:,}",
            _milliseconds(row.seconds),
            _milliseconds(row.exposed_seconds),
            f"{scaling.images_per_second(row):,.0f}",
            f"{scaling.efficiency(row):.0%}",
        )
    console.print(table)


def show_scaling(scaling: Scaling, console: Console, world: int | None) -> None:
    console.print("\npredicted speed, not measured:", style="bold")
    for assumption in scaling.assumptions:
        console.print(f"assumed: {assumption}", style="yellow")
    table = _table("devices", "samples\neach", "update\nms", "compute\nms", "slowest\nms", "reduce\nms",
                   "exposed\nms", "idle", "images/s", "efficiency")  # fmt: skip
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


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, collapse_padding=True, padding=(0, 1), header_style="bold")
    for name in names:
        table.add_column(name, justify="right")
    return table


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f}" if seconds >= 0.01 else f"{seconds * 1e3:.1f}"
