"""The run folder: what other programs may read. Names and fields are public."""

import json
import math
import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from distxcept import __version__
from distxcept.batching import BatchPlan
from distxcept.checkpoint.store import set_aside
from distxcept.cluster import detect
from distxcept.cluster.compute import in_effect
from distxcept.cluster.machine import package_versions
from distxcept.cluster.tether import typed_command
from distxcept.config.schema import Config
from distxcept.errors import ConfigError
from distxcept.report import predictions_file, telemetry_files
from distxcept.report.runs import read_lines
from distxcept.training.events import Observer, TrainRecord, ValidationRecord

WRITTEN_ON = (
    "metrics.jsonl", "bad_images.jsonl", predictions_file.FILE, telemetry_files.FILE, "report.html", "tensorboard"
)  # fmt: skip
"""Of a run, by all its processes; events.jsonl has the starts in it, and keeps what was before the last new one."""
PACKAGES = ("tensorflow", "keras", "numpy", "horovod", "mpi4py", "safetensors")


def make_run_folder(config: Config) -> Path:
    folder = Path(config.run.dir) / config.run.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "logs").mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(f"run.dir: {folder} cannot be made: {error.strerror}") from error
    return folder


def write_start_files(
    folder: Path,
    config: Config,
    plan: BatchPlan,
    devices: list[str],
    *,
    remat: bool,
    more: Mapping[str, str] | None = None,
) -> None:
    """config.yaml, plan.json, env.json: replaced at each start, since a run may go on elsewhere. `more` by name."""
    for name, text in (more or {}).items():
        _replace(folder / name, text)
    _replace(folder / "config.yaml", config.to_yaml())
    _write_plan(folder, plan, remat)
    _replace(folder / "env.json", json.dumps(describe_environment(devices), indent=1) + "\n")


def _write_plan(folder: Path, plan: BatchPlan, remat: bool) -> None:
    details = asdict(plan) | {
        "remat": remat,
        "updates_per_epoch": plan.updates_per_epoch,
        "max_micro_steps": plan.max_micro_steps,
        "equation": plan.equation(),
    }
    _replace(folder / "plan.json", json.dumps(details, indent=1) + "\n")


def describe_environment(devices: list[str]) -> dict[str, Any]:
    """Where and with what the run happens; of the environment only what is known to be no secret."""
    placement = detect(os.environ)
    return {
        "distxcept": __version__,
        "python": platform.python_version(),
        "packages": package_versions(PACKAGES),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpus": len(os.sched_getaffinity(0)),
        "devices": devices,
        "settings": in_effect(),
        "command": typed_command(os.environ),
        "directory": os.getcwd(),
        "launcher": placement.launcher,
        "ranks": placement.size,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


class RunFiles(Observer):
    """Appends to metrics.jsonl, events.jsonl and bad_images.jsonl, a line an entry."""

    def __init__(self, folder: Path, warn: Callable[[str], None] = lambda message: None):
        self._folder, self._warn = folder, warn
        self._files: dict[str, TextIO] = {}
        self._torn: set[str] = set()
        self._listed: set[str] = set()
        """Bad images that the file has, of earlier processes too."""

    def begins_anew(self) -> None:
        for path in (self._folder / name for name in WRITTEN_ON):
            try:
                if path.exists():
                    set_aside(self._folder, path)
            except OSError as error:
                self._warn(f"warning: {path} still has what an earlier training wrote ({error})")

    def started(self, start: dict[str, Any]) -> None:
        # What a killed process wrote after its last snapshot will happen again; the files tell each update once.
        try:
            _drop_after(self._folder / "metrics.jsonl", start["update"])
        except OSError as error:
            self._warn(f"warning: metrics.jsonl may tell some updates twice ({error})")
        self._listed = {str(one.get("path")) for one in read_lines(self._folder / "bad_images.jsonl")}
        self._append("events.jsonl", {"kind": "started", "time": time.time(), **start})

    def planned(self, plan: BatchPlan, *, remat: bool) -> None:
        try:
            _write_plan(self._folder, plan, remat)
        except OSError as error:
            self._warn(f"warning: plan.json still has the plan of before ({error})")

    def trained(self, record: TrainRecord) -> None:
        self._append("metrics.jsonl", {"kind": "train", **asdict(record)})

    def validated(self, record: ValidationRecord) -> None:
        self._append("metrics.jsonl", {"kind": "validation", **asdict(record)})

    def happened(self, kind: str, message: str, **details: Any) -> None:
        self._append("events.jsonl", {"kind": kind, "time": time.time(), "message": message, **details})

    def bad_image(self, index: int, path: str, reason: str) -> None:
        if path not in self._listed:
            self._listed.add(path)
            self._append("bad_images.jsonl", {"index": index, "path": path, "reason": reason})

    def ended(self, summary: dict[str, Any]) -> None:
        self._append("events.jsonl", {"kind": "ended", "time": time.time(), **summary})
        for name in list(self._files):
            self._drop(name)

    def _append(self, name: str, entry: dict[str, Any]) -> None:
        """A full disk costs lines of the log, never the training."""
        line = json.dumps(_without_nonfinite(entry), allow_nan=False) + "\n"
        try:
            if name not in self._files:
                self._files[name] = (self._folder / name).open("a", encoding="utf-8")
            self._files[name].write(f"\n{line}" if name in self._torn else line)
            self._files[name].flush()
            self._torn.discard(name)
        except OSError as error:
            self._drop(name)
            if name not in self._torn:
                self._torn.add(name)
                self._warn(
                    f"warning: {self._folder / name} cannot be written ({error}); the training goes on without"
                )

    def _drop(self, name: str) -> None:
        """What Python still holds back would be written later, in the middle of another line."""
        file = self._files.pop(name, None)
        if file is not None:
            with suppress(OSError):
                file.close()


def _without_nonfinite(entry: dict[str, Any]) -> dict[str, Any]:
    """JSON knows neither NaN nor infinity, and a reader may refuse the whole line: null says that there is no number."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in entry.items()
    }


def _drop_after(path: Path, update: int) -> None:
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["update"] <= update:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue  # torn by a kill in the middle of a write
    _replace(path, "".join(kept))


def _replace(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.writing")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)
