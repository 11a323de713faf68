"""The terminal: a start panel, a live line per epoch, one line for each notice, an end panel.

Without a terminal: plain lines every few seconds, and nothing is ever wrapped or drawn over.
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from distxcept.report.live_line import Moment, Pace, clock, live_line
from distxcept.report.panels import Lines, end_lines, start_lines
from distxcept.report.plain_text import plain_line
from distxcept.report.runs import Run
from distxcept.training.events import Observer, TrainRecord, ValidationRecord

PLAIN_EVERY_SECONDS = 10.0
PATIENCE_SECONDS = 20.0
"""Where records are rarer than this, there are short lines in between."""
BAD_IMAGES_SHOWN = 5
"""Of a process; the file has them all."""
QUIET_KINDS = ("saved",)
WARNING_KINDS = (
    "warning",
    "slow_input",
    "save_failed",
    "out_of_memory",
    "skipped_update",
    "bad_images",
    "straggler",
    "telemetry_failed",
)


class Terminal(Observer):
    """Writes to stderr: stdout is for data. As a context manager it leaves the terminal as it found it.

    `next_commands` is asked when the run has ended: what is best is known only then.
    """

    def __init__(
        self,
        title: str,
        *,
        quiet: bool = False,
        verbose: bool = False,
        next_commands: Callable[[], Sequence[str]] = tuple,
        console: Console | None = None,
    ):
        self.console = console or Console(stderr=True, quiet=quiet, highlight=False)
        self.title, self.verbose, self.next_commands = title, verbose, next_commands
        self._live: Live | None = None
        self._moment: Moment | None = None
        self._record: TrainRecord | None = None
        self._pace, self._epoch_pace = Pace(), Pace()
        self._epoch_length, self._total, self._validates = 1, 0, False
        self._said = time.monotonic()
        self._images, self._training_seconds, self._told_samples = 0, 0.0, 0
        self._bad_images, self._run_folder = 0, ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._close_line()

    @property
    def _draws(self) -> bool:
        return self.console.is_terminal and not self.console.quiet

    @property
    def _epochs(self) -> int:
        return math.ceil(self._total / self._epoch_length)

    def started(self, start: dict[str, Any]) -> None:
        self._epoch_length, self._total = start["updates_per_epoch"], start["total_updates"]
        self._validates = bool(start["validation_samples"])
        self._told_samples = start.get("samples_done", 0)
        self._run_folder = start.get("run_folder", "")
        self._panel(start_lines(start), self.title)
        if self._draws:
            self._open_line()

    def updated(self, update: int, loss: float, accuracy: float) -> None:
        now = time.monotonic()
        epoch, done = divmod(update - 1, self._epoch_length)
        first = epoch * self._epoch_length
        length = min(self._epoch_length, self._total - first)
        if self._moment is None or self._moment.epoch != epoch + 1:
            self._epoch_pace = Pace()
        self._pace.add(update, now)
        self._epoch_pace.add(update, now)
        pace = self._epoch_pace if self._epoch_pace.seconds_per_update is not None else self._pace
        record = self._record
        self._moment = Moment(
            epoch=epoch + 1,
            epochs=self._epochs,
            done=done + 1,
            length=length,
            loss=loss,
            accuracy=accuracy,
            images_per_second=record.images_per_second if record else None,
            data_wait=record.data_wait if record else None,
            memory_bytes=record.peak_memory if record else None,
            epoch_left=pace.left(length - done - 1),
            run_left=self._pace.left(self._total - update),
            validating=self._validates and done + 1 == length,
        )
        if self._draws:
            self._open_line()
        elif now - self._said >= PATIENCE_SECONDS:
            self._said = now
            self._say(
                f"epoch {epoch + 1}/{self._epochs} · update {update}/{self._total} · loss {loss:.4f} · "
                f"top-1 {accuracy:.1%}{self._left(update)}"
            )

    def _open_line(self) -> None:
        if self._live is None:
            self._live = Live(
                get_renderable=self._line, console=self.console, transient=True, refresh_per_second=4
            )
            self._live.start()

    def _left(self, update: int) -> str:
        return f" · {clock(self._pace.left(self._total - update))} left"

    def _line(self) -> Text:
        if self._moment is None:
            return Text("the first update is being prepared …", style="dim")
        return Text(live_line(self._moment, self.console.width - 1), no_wrap=True, overflow="ellipsis")

    def trained(self, record: TrainRecord) -> None:
        self._record = record
        images, self._told_samples = record.samples - self._told_samples, record.samples
        if record.images_per_second > 0:
            self._images += images
            self._training_seconds += images / record.images_per_second
        ends = record.update % self._epoch_length == 0 or record.update == self._total
        now = time.monotonic()
        quiet_now = self._draws or now - self._said < PLAIN_EVERY_SECONDS
        if not ends and quiet_now and not self.verbose:
            return
        self._said = now
        left = "" if ends or self._draws else self._left(record.update)
        self._say(
            f"epoch {record.epoch + 1}/{self._epochs} · update {record.update}/{self._total} · loss {record.loss:.4f} · "
            f"top-1 {record.accuracy:.1%} · lr {record.learning_rate:.3g} · {record.images_per_second:.1f} images/s · "
            f"wait {record.data_wait:.0%} · {record.peak_memory / 2**30:.2f} GiB{left}"
        )

    def validated(self, record: ValidationRecord) -> None:
        self._close_line()
        mark = " · best so far" if record.best else ""
        self._say(
            f"epoch {record.epoch + 1}/{self._epochs} · validation loss {record.loss:.4f} · top-1 {record.accuracy:.1%} · "
            f"top-5 {record.top5_accuracy:.1%}{mark}",
            style="bold" if record.best else None,
        )

    def happened(self, kind: str, message: str, **details: Any) -> None:
        if self.verbose or kind not in QUIET_KINDS:
            self._say(message, style="yellow" if kind in WARNING_KINDS else None)

    def bad_image(self, index: int, path: str, reason: str) -> None:
        self._bad_images += 1
        if self.verbose or self._bad_images <= BAD_IMAGES_SHOWN:
            self._say(f"bad image {path}: {reason}", style="yellow")
        elif self._bad_images == BAD_IMAGES_SHOWN + 1:
            self._say(f"more are listed in {Path(self._run_folder, 'bad_images.jsonl')}", style="yellow")

    def ended(self, summary: dict[str, Any]) -> None:
        self._close_line()
        run = Run(Path(summary["run_folder"]))
        report = run.folder / "report.html"
        lines = end_lines(
            summary,
            seconds=run.seconds,
            images_per_second=self._images / self._training_seconds if self._training_seconds else None,
            restarts=max(0, run.starts - 1),
            bad_images=len(run.bad_images),
            report=str(report) if report.exists() else None,
        )
        commands = [
            ("next" if not number else "", command) for number, command in enumerate(self.next_commands())
        ]
        self._panel(lines + commands, self.title)

    def _panel(self, lines: Lines, title: str) -> None:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim")
        table.add_column(overflow="fold")
        for label, text in lines:
            table.add_row(label, Text(plain_line(text)))
        self.console.print(Panel(table, title=Text(title), title_align="left", expand=False))

    def _say(self, message: str, style: str | None = None) -> None:
        """One line, however long: a log that is searched later must not be wrapped."""
        self.console.print(Text(plain_line(message)), style=style, soft_wrap=True)

    def _close_line(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
