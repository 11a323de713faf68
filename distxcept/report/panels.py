"""What the panels at the start and the end of a run say: labels and text. Pure."""

from collections.abc import Sequence
from typing import Any

from distxcept.report.wording import metric_text, show_duration

Lines = list[tuple[str, str]]


def start_lines(start: dict[str, Any]) -> Lines:
    devices = start["devices"]
    on_cpu = devices[0].startswith("CPU")
    why = " (no GPU found)" if start.get("gpu_looked_for", True) else " (CPU asked for)"
    checked = start["validation_samples"]
    epochs = start["total_updates"] / start["updates_per_epoch"]
    update = start["update"]
    lines = [
        ("model", start.get("model", "")),
        (
            "data",
            f"{start['samples']} images, {start['classes']} classes"
            + (f", validated on {checked}" if checked else ", no validation"),
        ),
        ("devices", f"engine {start['engine']} on {shown_devices(devices)}{why if on_cpu else ''}"),
        ("batch", start["batch"]),
        ("memory", start.get("memory", "")),
        (
            "length",
            f"{start['total_updates']} updates, {start['updates_per_epoch']} an epoch: {epochs:.4g} epochs",
        ),
        ("start", f"going on after update {update}" if update else "new, from the first update"),
        ("folder", start.get("run_folder", "")),
    ]
    return [(label, text) for label, text in lines if text]


def shown_devices(devices: Sequence[str]) -> str:
    return ", ".join(devices) if len(devices) <= 4 else f"{devices[0]} … {devices[-1]} ({len(devices)})"


def end_lines(
    summary: dict[str, Any],
    *,
    seconds: float,
    images_per_second: float | None,
    restarts: int,
    bad_images: int,
    report: str | None,
) -> Lines:
    """`seconds`, `restarts` and `bad_images` are those of the whole run, all its processes together."""
    early = summary["update"] < summary["total_updates"]
    updates = f"{summary['update']}{' of ' + str(summary['total_updates']) if early else ''} updates"
    speed = "" if images_per_second is None else f", {images_per_second:.1f} images/s"
    trouble = [
        (summary["skipped_updates"], "skipped update"),
        (restarts, "restart"),
        (bad_images, "bad image"),
    ]
    told = [f"{count} {name}{'s' * (count > 1)}" for count, name in trouble if count]
    best = metric_text(summary["best_metric"], summary["best"])
    lines = [
        ("best", "" if best == "–" else best),
        ("done", f"{updates} in {show_duration(seconds)}{speed}"),
        ("notice", ", ".join(told)),
        ("folder", summary["run_folder"]),
        ("report", report or ""),
    ]
    return [(label, text) for label, text in lines if text]
