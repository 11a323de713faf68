"""The curves of a report: which there are, from which fields of metrics.jsonl and telemetry.jsonl. Pure."""

import math
import re
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from distxcept.report.downsample import downsample, rounded
from distxcept.report.runs import Entry, Run, spans

MOST_POINTS = 2000
MOST_POINTS_OF_CHART = 12_000
MOST_SERIES = 64
EARLY_SECONDS = 2.0
"""By so much a rank's first sample may come before the chief's word that the run has started."""
PAUSE_SECONDS = 1.0
"""So much is left of the time between two processes of a run: enough to tell them apart."""
Series = dict[str, Any]
Spec = dict[str, Any]
Wanted = tuple[str, str, bool, bool, dict[str, str], dict[str, str]]

MARKED = {
    "out_of_memory": "ran out of memory, went on in smaller steps",
    "skipped_update": "skipped: not finite",
    "plateau": "learning rate lowered",
}
TRAINING: tuple[Wanted, ...] = (
    # id, title, percent, from zero, fields of train records, fields of validation records
    ("loss", "Loss", False, False, {"training": "loss"}, {"validation": "loss"}),
    ("accuracy", "Top-1 and top-5", True, False, {"training": "accuracy"},
     {"validation": "accuracy", "validation top-5": "top5_accuracy"}),
    ("learning-rate", "Learning rate", False, True, {"learning rate": "learning_rate"}, {}),
    ("gradient-norm", "Norm of the gradient", False, False, {"norm": "gradient_norm"}, {}),
)  # fmt: skip
SPEED: tuple[Wanted, ...] = (
    ("speed", "Images per second", False, True, {"images/s": "images_per_second"}, {}),
    ("data-wait", "Waiting for data, share of the time", True, True, {"waiting": "data_wait"}, {}),
)


def series_of(name: str, points: Iterable[tuple[Any, Any]], *, beside: int = 0) -> Series:
    """`beside`: other series in the same chart, which share its points."""
    pairs = [(x, _number(y)) for x, y in points if _number(x) is not None]
    most = min(MOST_POINTS, MOST_POINTS_OF_CHART // (beside + 1))
    xs, ys = downsample([x for x, _ in pairs], [y for _, y in pairs], most)
    return {"name": name, "x": [rounded(x, 9) for x in xs], "y": [rounded(y) for y in ys]}


def _number(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if known else None


def _entries(entries: Sequence[Entry], name: str, field: str) -> Series:
    return series_of(name, ((entry.get("update"), entry.get(field)) for entry in entries))


def markers(events: Sequence[Entry]) -> list[dict[str, Any]]:
    """Where something happened that a curve may show. The page stays quick with a hundred of them."""
    found = []
    for event in events:
        update, kind = event.get("update"), event.get("kind")
        if not isinstance(update, int):
            continue
        if kind == "started" and update:
            found.append({"x": update, "text": f"started again after update {update}"})
        elif kind in MARKED:
            found.append({"x": update, "text": f"update {update}: {MARKED[kind]}"})
    return found[:100]


def run_curves(run: Run) -> list[Spec]:
    return curves_of([("", run)], TRAINING) + curves_of([("", run)], SPEED)


def comparison_curves(runs: Sequence[tuple[str, Run]]) -> list[Spec]:
    """Each curve of each run in one chart, under the run's name."""
    return curves_of(runs, TRAINING) + curves_of(runs, SPEED)


def curves_of(runs: Sequence[tuple[str, Run]], wanted: Sequence[Wanted]) -> list[Spec]:
    specs = []
    for identity, title, percent, zero, of_train, of_validation in wanted:
        series = []
        for prefix, run in runs:
            for entries, fields in ((run.train, of_train), (run.validation, of_validation)):
                series += [
                    _entries(entries, f"{prefix} {name}".strip(), field) for name, field in fields.items()
                ]
        marked = markers(runs[0][1].events) if len(runs) == 1 else []
        specs.append(_spec(identity, title, "update", series, percent=percent, zero=zero, markers=marked))
    return [spec for spec in specs if spec["series"]]


def _spec(
    identity: str, title: str, xlabel: str, series: Iterable[Series], *, percent: bool = False, zero: bool = True,
    markers: Sequence[dict[str, Any]] = (),
) -> Spec:  # fmt: skip
    """Series without a single value are left out."""
    known = [one for one in series if any(y is not None for y in one["y"])]
    return {
        "id": identity, "title": title, "xlabel": xlabel, "series": known, "percent": percent, "zero": zero,
        "markers": list(markers),
    }  # fmt: skip


class RunningTime:
    """Minutes of running since the first sample: without the time between two processes of a run."""

    def __init__(self, moments: Iterable[float], events: Sequence[Entry]):
        known = sorted(moments)
        starts = [first - EARLY_SECONDS for first, _ in spans(events)][1:]
        between = [(a, b) for a, b in pairwise(known) if bisect(starts, a) != bisect(starts, b)]
        self._first = known[0]
        self._after = [after for _, after in between]
        self._left_out = [0.0]
        for before, after in between:
            self._left_out.append(self._left_out[-1] + max(0.0, after - before - PAUSE_SECONDS))
        self.breaks = [(self.minutes(before) + self.minutes(after)) / 2 for before, after in between]
        """Where one process has ended and the next one has not begun."""

    def minutes(self, moment: float) -> float:
        return (moment - self._first - self._left_out[bisect(self._after, moment)]) / 60


def _several(points: dict[str, list[tuple[float, float | None]]], breaks: Sequence[float]) -> list[Series]:
    shown = sorted(points.items(), key=lambda item: [int(n) for n in re.findall(r"\d+", item[0])])[
        :MOST_SERIES
    ]
    series = [series_of(name, found, beside=len(shown) - 1) for name, found in shown]
    for one in series:
        for at in breaks:
            place = bisect(one["x"], at)
            if 0 < place < len(one["x"]):
                one["x"].insert(place, rounded(at, 9))
                one["y"].insert(place, None)
    return series


def device_curves(telemetry: Sequence[Entry], events: Sequence[Entry] = ()) -> list[Spec]:
    """Memory and use of each device and each process over the time in which the run was running."""
    samples = [entry for entry in telemetry if entry.get("kind") == "sample" and _number(entry.get("time"))]
    if not samples:
        return []
    clock = RunningTime((sample["time"] for sample in samples), events)

    def minutes(sample: Entry) -> float:
        return clock.minutes(sample["time"])

    def of_cards(field: str, unit: float) -> list[Series]:
        points: dict[str, list[tuple[float, float | None]]] = {}
        for sample in samples:
            for card in sample.get("cards") or []:
                value = _number(card.get(field))
                name = f"rank {sample.get('rank')} GPU {card.get('index')}"
                points.setdefault(name, []).append((minutes(sample), None if value is None else value / unit))
        return _several(points, clock.breaks)

    def of_ranks(value: Callable[[Entry], float | None]) -> list[Series]:
        points: dict[str, list[tuple[float, float | None]]] = {}
        for sample in samples:
            points.setdefault(f"rank {sample.get('rank')}", []).append((minutes(sample), value(sample)))
        return _several(points, clock.breaks)

    def gib(sample: Entry) -> float | None:
        return None if (size := _number(sample.get("rss_bytes"))) is None else size / 2**30

    specs = [
        _spec("card-memory", "Memory of the cards, GiB", "minutes", of_cards("memory_used_bytes", 2**30)),
        _spec("card-use", "Utilisation of the cards", "minutes", of_cards("utilisation_percent", 100), percent=True),
        _spec("card-power", "Power, W", "minutes", of_cards("power_watts", 1)),
        _spec("process-memory", "Memory of the processes, GiB", "minutes", of_ranks(gib)),
        _spec("process-use", "Use of the processor cores", "minutes", of_ranks(lambda s: _number(s.get("cpu_share"))),
              percent=True),
    ]  # fmt: skip
    return [spec for spec in specs if spec["series"]]
