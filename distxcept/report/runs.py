"""Run folders, read: what `runs`, `compare` and `report` show. No TensorFlow; a damaged line costs that line only."""

import json
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import psutil

from distxcept.checkpoint.names import no_run, places
from distxcept.cluster.status import RankStatus, read_statuses, root_cause
from distxcept.config.base import Metric, larger_is_better
from distxcept.config.yaml_text import YamlProblem, parse_yaml
from distxcept.errors import ConfigError

Entry = dict[str, Any]
SILENT_SECONDS = 180.0
"""A rank writes its status several times a minute: one that has not for so long, elsewhere, has gone."""
METRIC_FIELDS = {
    "validation_loss": "loss",
    "validation_accuracy": "accuracy",
    "validation_top5_accuracy": "top5_accuracy",
}


@dataclass(frozen=True)
class Run:
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @cached_property
    def config(self) -> Entry:
        try:
            found = parse_yaml((self.folder / "config.yaml").read_text(encoding="utf-8")).data
        except (OSError, ValueError, YamlProblem):
            return {}
        return found if isinstance(found, dict) else {}

    @cached_property
    def plan(self) -> Entry:
        return read_json(self.folder / "plan.json")

    @cached_property
    def environment(self) -> Entry:
        return read_json(self.folder / "env.json")

    @cached_property
    def metrics(self) -> list[Entry]:
        return read_lines(self.folder / "metrics.jsonl")

    @cached_property
    def events(self) -> list[Entry]:
        """Since it began; with `run.resume=never` a folder may have held another run before."""
        told = read_lines(self.folder / "events.jsonl")
        anew = [
            n
            for n, event in enumerate(told)
            if event.get("kind") == "started" and event.get("resume") == "never"
        ]
        return told[anew[-1] :] if anew else told

    @cached_property
    def bad_images(self) -> list[Entry]:
        return read_lines(self.folder / "bad_images.jsonl")

    @cached_property
    def telemetry(self) -> list[Entry]:
        return read_lines(self.folder / "telemetry.jsonl")

    @property
    def train(self) -> list[Entry]:
        return [entry for entry in self.metrics if entry.get("kind") == "train"]

    @property
    def validation(self) -> list[Entry]:
        return [entry for entry in self.metrics if entry.get("kind") == "validation"]

    @property
    def started(self) -> Entry:
        """The newest start."""
        return next((event for event in reversed(self.events) if event.get("kind") == "started"), {})

    @property
    def starts(self) -> int:
        return sum(event.get("kind") == "started" for event in self.events)

    @cached_property
    def statuses(self) -> dict[int, RankStatus]:
        return read_statuses(self.folder)

    @cached_property
    def update(self) -> int:
        """Updates done, as far as it was told."""
        told = [entry.get("update") for entry in self.metrics] + [s.update for s in self.statuses.values()]
        return max((number for number in told if isinstance(number, int)), default=0)

    @property
    def best_metric(self) -> str | None:
        return (self.config.get("checkpoint") or {}).get("best_metric")

    @property
    def best(self) -> Entry | None:
        """The best validation by the run's own metric; None where there was none."""
        metric = self.best_metric
        if metric not in METRIC_FIELDS:
            return None
        field = METRIC_FIELDS[metric]
        judged = [entry for entry in self.validation if isinstance(entry.get(field), int | float)]
        if not judged:
            return None
        choose = max if larger_is_better(cast(Metric, metric)) else min
        return choose(judged, key=lambda entry: entry[field])

    @property
    def best_value(self) -> float | None:
        best = self.best
        return None if best is None else best[METRIC_FIELDS[self.best_metric or ""]]

    @property
    def last_sign(self) -> float:
        """When anything was last written, seconds since 1970."""
        names = ("metrics.jsonl", "events.jsonl", "config.yaml")
        written = [path.stat().st_mtime for name in names if (path := self.folder / name).exists()]
        return max([*written, *(status.time for status in self.statuses.values())], default=0.0)

    @property
    def seconds(self) -> float:
        """Time in which it ran: from each start to the last event before the next one."""
        return sum(last - first for first, last in spans(self.events))

    def state(self, now: float | None = None) -> str:
        """done, stopped, running, failed, lost (gone without a word), or new."""
        statuses = list(self.statuses.values())
        states = {status.state for status in statuses}
        ended = bool(self.events) and self.events[-1].get("kind") == "ended"
        if "failed" in states:
            return "failed"
        if states & {"starting", "running"}:
            alive = any(is_alive(one, now or time.time()) for one in statuses if not one.ended)
            return "running" if alive else "lost"
        if ended or states == {"done"}:
            return "done"
        return "stopped" if "stopped" in states else "lost" if self.events else "new"

    @property
    def failure(self) -> str | None:
        cause = root_cause(self.statuses.values())
        return cause.message if cause else None


def spans(events: Iterable[Entry]) -> list[tuple[float, float]]:
    """First and last moment of each process of a run."""
    found: list[tuple[float, float]] = []
    for event in events:
        moment = event.get("time")
        if not isinstance(moment, int | float):
            continue
        if event.get("kind") == "started":
            found.append((moment, moment))
        elif found:
            found[-1] = (found[-1][0], max(found[-1][1], moment))
    return found


def is_alive(status: RankStatus, now: float) -> bool:
    if status.host == socket.gethostname():
        return psutil.pid_exists(status.pid)
    return now - status.time < SILENT_SECONDS


def open_run(name: str) -> Run:
    """By its path, or by its name below runs/. ConfigError where it is no run."""
    for folder in places(name):
        if is_run(folder):
            return Run(folder)
    if Path(name).expanduser().is_dir():
        raise ConfigError(
            f"{name} is no run folder: it lacks config.yaml, or what a run writes beside it; see distxcept runs"
        )
    raise ConfigError(no_run(name))


def is_run(folder: Path) -> bool:
    return (folder / "config.yaml").is_file() and (
        (folder / "metrics.jsonl").exists() or (folder / "env.json").exists() or (folder / "status").exists()
    )


def find_runs(folder: Path) -> list[Run]:
    """All below `folder`, two levels deep at most, newest sign of life first."""
    if is_run(folder):
        return [Run(folder)]
    candidates = sorted({*folder.glob("*/config.yaml"), *folder.glob("*/*/config.yaml")})
    runs = [Run(path.parent) for path in candidates if is_run(path.parent)]
    return sorted(runs, key=lambda run: -run.last_sign)


def read_json(path: Path) -> Entry:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_lines(path: Path) -> list[Entry]:
    """Objects of a file of JSON lines; lines torn by a kill are left out."""
    found = []
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if isinstance(entry, dict):
                    found.append(entry)
    except OSError:
        return []
    return found


def flatten(value: Mapping[str, Any], prefix: str = "") -> Entry:
    """{"run": {"seed": 3}} → {"run.seed": 3}."""
    flat: Entry = {}
    for key, inner in value.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        flat |= flatten(inner, name) if isinstance(inner, dict) and inner else {name: inner}
    return flat
