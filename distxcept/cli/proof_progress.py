"""Progress of `distxcept prove`: one bar for each section on a terminal, one line for each that has ended elsewhere."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from distxcept.prove.rows import Row


class Bars:
    """On a terminal."""

    def __init__(self, console: Console):
        columns = (
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, TextColumn("{task.fields[found]}"), console=console)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "Bars":
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()

    def begin(self, section: str, steps: int) -> None:
        self._tasks[section] = self._progress.add_task(section, total=steps, found="")

    def tick(self, section: str) -> None:
        self._progress.advance(self._tasks[section])

    def end(self, section: str, rows: Sequence["Row"]) -> None:
        task = self._tasks[section]
        total = self._progress.tasks[task].total
        self._progress.update(task, completed=total, found=found(rows))
        self._progress.stop_task(task)


class Lines:
    """Without a terminal."""

    def __init__(self, console: Console):
        self._console = console

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def begin(self, section: str, steps: int) -> None:
        pass

    def tick(self, section: str) -> None:
        pass

    def end(self, section: str, rows: Sequence["Row"]) -> None:
        self._console.print(f"{section}: {found(rows)}", highlight=False, markup=False, soft_wrap=True)


def found(rows: Sequence["Row"]) -> str:
    """How many rows of each status, such as `5 held, 1 skipped`."""
    from distxcept.prove.rows import counts

    return ", ".join(f"{number} {status}" for status, number in counts(rows).items() if number)


def proof_progress(console: Console) -> Bars | Lines:
    return Bars(console) if console.is_terminal and not console.quiet else Lines(console)
