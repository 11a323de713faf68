"""RUN/telemetry.jsonl, one line a sample from every rank, and the same as TensorBoard scalars.

All ranks append to one file: each line in a single write at the end of the file, under a lock where the file system has
locks (NFS would otherwise tear lines of different hosts). What another rank notices, the chief reads there.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distxcept.memory.notices import Notice
from distxcept.memory.sample import Sample
from distxcept.report.writers.tensorboard import EventFile

FILE = "telemetry.jsonl"
CARD_FIELDS = (
    "index", "name", "memory_used_bytes", "memory_total_bytes", "utilisation_percent", "temperature_celsius", "power_watts",
    "sm_clock_mhz", "memory_clock_mhz", "throttling",
)  # fmt: skip
CARD_SCALARS = {
    "memory_gib": ("memory_used_bytes", 2**30),
    "utilisation_percent": ("utilisation_percent", 1),
    "temperature_celsius": ("temperature_celsius", 1),
    "power_watts": ("power_watts", 1),
    "sm_clock_mhz": ("sm_clock_mhz", 1),
    "memory_clock_mhz": ("memory_clock_mhz", 1),
}


class TelemetryFiles:
    """An output of the telemetry. Opens its files on the thread that writes them."""

    def __init__(
        self,
        run_folder: Path,
        *,
        rank: int,
        ranks: int,
        tensorboard: bool,
        phases: Mapping[str, int] | None = None,
    ):
        """`tensorboard`: as scalars, too. `phases`: peak bytes of each phase of an update, where they were asked for."""
        self._folder, self._rank, self._ranks, self._tensorboard = run_folder, rank, ranks, tensorboard
        self._phases = phases
        self._file: LineFile | None = None
        self._board: EventFile | None = None

    def open(self, updates_done: int) -> None:
        self._file = LineFile(self._folder / FILE)
        if self._tensorboard:
            folder = self._folder / "tensorboard" / f"telemetry-rank-{self._rank}"
            self._board = EventFile(folder, updates_done)
        if self._phases:
            self._write_phases(self._phases, updates_done)

    def _write_phases(self, phases: Mapping[str, int], updates_done: int) -> None:
        assert self._file
        now = time.time()
        entry = {"kind": "memory_phases", "rank": self._rank, "time": round(now, 3), "update": updates_done}
        self._file.append({**entry, **{f"{phase}_bytes": peak for phase, peak in phases.items()}})
        if self._board:
            named = {f"memory_phases/{phase}_gib": peak / 2**30 for phase, peak in phases.items()}
            self._board.add(updates_done, [self._board.scalar(*one) for one in named.items()], now)

    def write(self, sample: Sample, notices: Sequence[Notice]) -> None:
        assert self._file
        self._file.append({"kind": "sample", "rank": self._rank, **sample_fields(sample)})
        for notice in notices:
            self._file.append(
                {
                    "kind": "notice",
                    "rank": self._rank,
                    "host": os.uname().nodename,
                    "time": sample.time,
                    "notice": notice.kind,
                    "subject": notice.subject,
                    "message": notice.message,
                    **notice.details,
                }
            )
        if self._board:
            values = [self._board.scalar(tag, value) for tag, value in scalars(sample).items()]
            self._board.add(sample.moment.update, values, sample.time)

    def of_other_ranks(self) -> list[Notice]:
        """For the chief, who alone talks to the user."""
        if self._rank or self._ranks == 1:
            return []
        assert self._file
        return [
            Notice(
                entry["notice"],
                f"rank {entry['rank']} {entry['subject']}",
                f"rank {entry['rank']} on {entry['host']}: {entry['message']}",
            )
            for entry in self._file.new_entries("notice")
            if entry["rank"] != self._rank
        ]

    def close(self) -> None:
        if self._file:
            self._file.close()
        if self._board:
            self._board.close()


def sample_fields(sample: Sample) -> dict[str, Any]:
    moment = sample.moment
    return {
        "time": round(sample.time, 3),
        "phase": moment.phase,
        "update": moment.update,
        "data_wait": round(sample.data_wait, 4),
        "rss_bytes": sample.rss_bytes,
        "cpu_share": round(sample.cpu_share, 4),
        "cards": [{field: getattr(card, field) for field in CARD_FIELDS} for card in sample.cards],
    }


def scalars(sample: Sample) -> dict[str, float]:
    """By TensorBoard's names; what a card does not tell is left out."""
    found = {
        "host/rss_gib": sample.rss_bytes / 2**30,
        "host/cpu_share": sample.cpu_share,
        "host/data_wait": sample.data_wait,
    }
    for card in sample.cards:
        for name, (field, unit) in CARD_SCALARS.items():
            value = getattr(card, field)
            if value is not None:
                found[f"gpu_{card.index}/{name}"] = value / unit
        found[f"gpu_{card.index}/throttled"] = float(bool(card.throttling))
    return found


class LineFile:
    """JSON lines that several processes append to."""

    def __init__(self, path: Path):
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._read_to = os.fstat(self._descriptor).st_size

    def append(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        with self._locked():
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # a process was killed in the middle of its line
            if os.write(self._descriptor, line) != len(line):
                raise OSError(f"{self._path} cannot be written to: no space left")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        except OSError:  # this file system has no locks; a local one appends whole lines all the same
            yield
            return
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def new_entries(self, kind: str) -> list[dict[str, Any]]:
        """Entries of this kind, whoever wrote them, since the last call or the opening; torn lines are left out."""
        size = os.fstat(self._descriptor).st_size
        new = os.pread(self._descriptor, size - self._read_to, self._read_to)
        whole = new[: new.rfind(b"\n") + 1]
        self._read_to += len(whole)
        mark = f'"kind":"{kind}"'.encode()
        found = []
        for line in whole.splitlines():
            if mark in line:
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue
        return found

    def close(self) -> None:
        os.close(self._descriptor)
