"""The terminal: a start panel, a live line per epoch, one line for each notice. Plain lines without a terminal."""

import time
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from distxcept.training.events import Observer, TrainRecord, ValidationRecord

PLAIN_EVERY_SECONDS = 10.0
QUIET_KINDS = ("saved",)


class Terminal(Observer):
    """Writes to stderr: stdout is for data."""

    def __init__(self, title: str, *, quiet: bool = False, verbose: bool = False):
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.title, self.verbose = title, verbose
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._epoch_length, self._total = 1, 0
        self._said = 0.0
        self._began = time.monotonic()

    def started(self, start: dict[str, Any]) -> None:
        self._epoch_length, self._total = start["updates_per_epoch"], start["total_updates"]
        device = ", ".join(start["devices"]) + (
            " (no GPU found)" if start["devices"][0].startswith("CPU") else ""
        )
        lines = [
            f"{start['samples']} images, {start['classes']} classes"
            + (
                f", validated on {start['validation_samples']}"
                if start["validation_samples"]
                else ", no validation"
            ),
            f"engine {start['engine']} on {device}",
            start["batch"],
            f"{start['total_updates']} updates, {start['updates_per_epoch']} an epoch"
            + (f"; going on after update {start['update']}" if start["update"] else ""),
        ]
        self.console.print(Panel("\n".join(lines), title=self.title, title_align="left", expand=False))

    def updated(self, update: int, loss: float, accuracy: float) -> None:
        if not self.console.is_terminal or self.console.quiet:
            return
        epoch, done = divmod(update - 1, self._epoch_length)
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("loss {task.fields[loss]:.4f} · top-1 {task.fields[accuracy]:.1%}"),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            length = min(self._epoch_length, self._total - epoch * self._epoch_length)
            self._task = self._progress.add_task(
                f"epoch {epoch + 1}", total=length, completed=done, loss=loss, accuracy=accuracy
            )
            self._progress.start()
        assert self._task is not None
        self._progress.update(self._task, completed=done + 1, loss=loss, accuracy=accuracy)
        if done + 1 == self._epoch_length or update == self._total:
            self._close_line()

    def trained(self, record: TrainRecord) -> None:
        ends = record.update % self._epoch_length == 0 or record.update == self._total
        now = time.monotonic()
        if not ends and (self.console.is_terminal or now - self._said < PLAIN_EVERY_SECONDS):
            return
        self._said = now
        self.console.print(
            f"epoch {record.epoch + 1} · update {record.update}/{self._total} · loss {record.loss:.4f} · "
            f"top-1 {record.accuracy:.1%} · lr {record.learning_rate:.3g} · {record.images_per_second:.1f} images/s · "
            f"data wait {record.data_wait:.0%} · peak {record.peak_memory / 2**30:.2f} GiB"
        )

    def validated(self, record: ValidationRecord) -> None:
        self._close_line()
        mark = " · best so far" if record.best else ""
        self.console.print(
            f"epoch {record.epoch + 1} · validation loss {record.loss:.4f} · top-1 {record.accuracy:.1%} · "
            f"top-5 {record.top5_accuracy:.1%}{mark}"
        )

    def happened(self, kind: str, message: str, **details: Any) -> None:
        if self.verbose or kind not in QUIET_KINDS:
            self.console.print(message, markup=False)

    def bad_image(self, index: int, path: str, reason: str) -> None:
        self.console.print(f"bad image {path}: {reason}", markup=False)

    def ended(self, summary: dict[str, Any]) -> None:
        self._close_line()
        minutes, seconds = divmod(round(time.monotonic() - self._began), 60)
        best = summary["best"]
        lines = [
            f"done: {summary['update']} updates in {minutes} min {seconds} s"
            + (f", {summary['skipped_updates']} skipped" if summary["skipped_updates"] else "")
        ]
        if best is not None:
            lines.append(f"best {summary['best_metric'].replace('_', ' ')} {best:.4f}")
        lines.append(f"everything is in {summary['run_folder']}")
        self.console.print(Panel("\n".join(lines), title_align="left", expand=False))

    def _close_line(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
