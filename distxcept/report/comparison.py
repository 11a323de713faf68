"""Two runs beside each other: what differs in their configs, where their courses part, how far their weights are apart."""

from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from distxcept.checkpoint.snapshot import Snapshot, SnapshotError, open_snapshot
from distxcept.checkpoint.store import Store
from distxcept.report.runs import Entry, Run, flatten

COURSE_FIELDS = ("loss", "gradient_norm", "accuracy", "samples", "learning_rate", "skipped_updates")
"""What an update determines; speed and memory may differ as they like."""
PLACE_KEYS = ("run.name", "run.dir", "run.resume")


@dataclass(frozen=True)
class Parting:
    """The first record that differs. Between `after` and `update` the runs were equal, or nobody looked."""

    update: int
    after: int
    field: str
    values: tuple[Any, Any]


@dataclass(frozen=True)
class WeightDifference:
    updates: tuple[int, int]
    """Of the snapshots that were compared."""
    tensor: str
    relative: float | None
    """max|a − b| / max|a|, of the tensor where it is largest; None where it is not finite."""
    equal_tensors: int
    tensors: int


def results(run: Run) -> dict[str, Any]:
    """What a table of runs shows, by name; None where it is not known."""
    train, validation = run.train, run.validation
    last, last_validation = train[-1] if train else {}, validation[-1] if validation else {}
    best = run.best or {}
    speeds = [entry["images_per_second"] for entry in train if entry.get("images_per_second")]
    return {
        "state": run.state(),
        "update": run.update,
        "total_updates": run.started.get("total_updates"),
        "samples": last.get("samples"),
        "best_metric": run.best_metric,
        "best": run.best_value,
        "best_update": best.get("update"),
        "validation_loss": last_validation.get("loss"),
        "validation_accuracy": last_validation.get("accuracy"),
        "validation_top5_accuracy": last_validation.get("top5_accuracy"),
        "train_loss": last.get("loss"),
        "train_accuracy": last.get("accuracy"),
        "images_per_second": median(speeds) if speeds else None,
        "seconds": round(run.seconds, 1) if run.events else None,
        "peak_memory": max((entry.get("peak_memory") or 0 for entry in train), default=None),
        "starts": run.starts,
        "skipped_updates": last.get("skipped_updates"),
        "bad_images": len(run.bad_images),
        "engine": run.started.get("engine"),
        "replicas": run.started.get("replicas"),
    }


def config_differences(configs: list[Entry]) -> dict[str, list[Any]]:
    """Keys whose values are not the same in all, with each one's value; where the runs lie is no difference."""
    flat = [flatten(config) for config in configs]
    keys = sorted(set().union(*flat)) if flat else []
    found = {key: [one.get(key) for one in flat] for key in keys if key not in PLACE_KEYS}
    return {key: values for key, values in found.items() if any(a != b for a, b in pairwise(values))}


def first_parting(
    a: list[Entry], b: list[Entry], *, tolerance: float = 0.0, fields: tuple[str, ...] = COURSE_FIELDS
) -> Parting | None:
    """The first of the updates that both tell of where a field differs by more than `tolerance`, relatively.

    Records are means since the one before, so two are compared only where both cover the same updates.
    """
    theirs = {entry["update"]: (before, entry) for before, entry in _with_before(b)}
    same_up_to = 0
    for before, entry in _with_before(a):
        match = theirs.get(entry["update"])
        if match is None or match[0] != before:
            continue
        for field in fields:
            ours, other = entry.get(field), match[1].get(field)
            if differs(ours, other, tolerance):
                return Parting(entry["update"], same_up_to, field, (ours, other))
        same_up_to = entry["update"]
    return None


def compared_updates(a: list[Entry], b: list[Entry]) -> int:
    """Records that cover the same updates in both."""
    return len(
        {(before, entry["update"]) for before, entry in _with_before(a)}
        & {(before, entry["update"]) for before, entry in _with_before(b)}
    )


def _with_before(entries: list[Entry]) -> list[tuple[int, Entry]]:
    known = [entry for entry in entries if isinstance(entry.get("update"), int)]
    return [(before, entry) for before, entry in zip([0] + [e["update"] for e in known], known, strict=False)]


def differs(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) > tolerance * max(abs(a), abs(b))
    return a != b


def weight_difference(a: Run, b: Run) -> WeightDifference | str:
    """Of the newest update that both have a whole snapshot of, else of the newest of each; or why there is none."""
    pair = _snapshots_to_compare(Store(a.folder), Store(b.folder))
    if pair is None:
        return "one of them has no whole snapshot"
    try:
        ours, theirs = (snapshot.tensors() for snapshot in pair)
    except SnapshotError as error:
        return str(error)
    return largest_difference(ours, theirs, (pair[0].update, pair[1].update))


def _snapshots_to_compare(a: Store, b: Store) -> tuple[Snapshot, Snapshot] | None:
    """Opens no more than it needs: to open a snapshot is to read all of it."""
    for update in sorted(set(a.updates()) & set(b.updates()), reverse=True):
        with suppress(SnapshotError):
            return open_snapshot(a.path(update)), open_snapshot(b.path(update))
    ours, theirs = a.choose().snapshot, b.choose().snapshot
    return (ours, theirs) if ours and theirs else None


def largest_difference(
    a: dict[str, np.ndarray], b: dict[str, np.ndarray], updates: tuple[int, int] = (0, 0)
) -> WeightDifference | str:
    """Over the weights alone: optimizer slots exist to differ."""
    names = [name for name in sorted(a) if name.startswith("weights/")]
    if names != [name for name in sorted(b) if name.startswith("weights/")]:
        return "their models have other tensors"
    for name in names:
        if a[name].shape != b[name].shape:
            return f"{name} is {list(a[name].shape)} in one and {list(b[name].shape)} in the other"
    found = {name: _relative(a[name], b[name]) for name in names}
    if not found:
        return "there are no weights in them"
    worst = max(found, key=lambda name: found[name])
    equal = sum(value == 0.0 for value in found.values())
    largest = found[worst] if np.isfinite(found[worst]) else None
    return WeightDifference(updates, worst.removeprefix("weights/"), largest, equal, len(names))


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    if not a.size:
        return 0.0
    x, y = a.astype(np.float64), b.astype(np.float64)
    difference = float(np.max(np.abs(x - y)))
    if difference == 0.0:
        return 0.0
    if not np.isfinite(difference):
        return float("inf")
    return difference / max(float(np.max(np.abs(x))), 1e-30)


def compare(runs: list[Run], *, tolerance: float, weights: bool = True) -> dict[str, Any]:
    """Each run against the first. Fields are public."""
    first = runs[0]
    pairs = []
    for other in runs[1:]:
        apart = weight_difference(first, other) if weights else "not looked at"
        differing = first_parting(first.train, other.train)
        parted = first_parting(first.train, other.train, tolerance=tolerance)
        pairs.append(
            {
                "runs": [str(first.folder), str(other.folder)],
                "records_compared": compared_updates(first.train, other.train),
                "first_difference": asdict(differing) if differing else None,
                "tolerance": tolerance,
                "parts": asdict(parted) if parted else None,
                "weights": asdict(apart) if isinstance(apart, WeightDifference) else None,
                "weights_not_compared": apart if isinstance(apart, str) else None,
            }
        )
    return {
        "runs": [{"run": str(run.folder), **results(run)} for run in runs],
        "config": config_differences([run.config for run in runs]),
        "pairs": pairs,
    }


def pair_lines(pair: dict[str, Any]) -> list[str]:
    """What there is to say of two runs, in sentences."""
    one, other = pair["runs"]
    lines = [f"{one} and {other}:"]
    parts, differing, count = pair["parts"], pair["first_difference"], pair["records_compared"]
    if not count:
        lines.append("  no record of theirs covers the same updates, so where they part cannot be told")
    elif differing is None:
        lines.append(
            f"  the same course, to the last digit, in {count} record{'s' * (count > 1)} that both have"
        )
    else:
        lines.append(f"  {_parting('differ first', differing)}")
        tolerance = pair["tolerance"]
        if parts is None:
            lines.append(f"  they never part by more than {tolerance:g}")
        elif parts != differing:
            lines.append(f"  {_parting(f'part by more than {tolerance:g}', parts)}")
    weights = pair["weights"]
    if weights is None:
        lines.append(f"  weights: {pair['weights_not_compared']}")
        return lines
    a, b = weights["updates"]
    when = f"after update {a}" if a == b else f"after update {a} and {b}"
    if weights["relative"] is None:
        lines.append(f"  weights {when}: not finite, in {weights['tensor']}")
    elif weights["relative"] == 0.0:
        lines.append(f"  weights {when}: the same bits in all {weights['tensors']} tensors")
    else:
        lines.append(
            f"  weights {when}: largest relative difference {weights['relative']:.3g}, in {weights['tensor']}; "
            f"{weights['equal_tensors']} of {weights['tensors']} tensors are equal"
        )
    return lines


def _parting(what: str, parting: dict[str, Any]) -> str:
    a, b = parting["values"]
    between = f"update {parting['update']}"
    if parting["update"] - parting["after"] > 1:
        between = f"updates {parting['after'] + 1} to {parting['update']}"
    field = parting["field"].replace("_", " ")
    return f"they {what} in {between}: {field} {_exact(a)} and {_exact(b)}"


def _exact(value: Any) -> str:
    return "nothing" if value is None else repr(value)
