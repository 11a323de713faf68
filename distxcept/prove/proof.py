"""Runs the sections of `distxcept prove` and collects their rows.

sections that need no quiet machine, side by side      every guarantee is in one of these
links, then speed, alone                               they take what is left of the time, and skip the rest
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from distxcept.errors import one_line
from distxcept.prove import audit, environment, equality, links, memory, recovery, speed
from distxcept.prove.children import Children, Stopped
from distxcept.prove.context import Context
from distxcept.prove.machine import Machine
from distxcept.prove.rows import Report, Row, failed, measured

SECTIONS: Mapping[str, ModuleType] = {
    "environment": environment,
    "audit": audit,
    "equality": equality,
    "recovery": recovery,
    "memory": memory,
    "speed": speed,
    "links": links,
}
"""In the order of the report. Each has `steps(context)` and `run(context)`, which yields rows."""
QUIET = ("links", "speed")
"""They measure time, so nothing else runs beside them. In the order in which they run."""
WITHOUT_GUARANTEE = ("speed",)


class Progress(Protocol):
    def begin(self, section: str, steps: int) -> None: ...

    def tick(self, section: str) -> None: ...

    def end(self, section: str, rows: Sequence[Row]) -> None: ...


@dataclass
class Proof:
    machine: Machine
    quick: bool
    folder: Path
    progress: Progress
    about: Mapping[str, Any] = field(default_factory=dict)
    deadline: float = math.inf
    """Of time.monotonic()."""
    rows: dict[str, list[Row]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False

    def run(self, names: Sequence[str]) -> Report:
        """KeyboardInterrupt ends the children; what was found until then is in the report."""
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        children = Children(logs, on_gpu=self.machine.on_gpu, deadline=self.deadline)
        context = Context(self.machine, self.quick, self.folder, children)
        beside = [name for name in names if name not in QUIET]
        pool = ThreadPoolExecutor(max_workers=max(1, len(beside)))
        try:
            self._together(pool, context, beside)
            for name in QUIET:
                if name in names:
                    self._together(pool, context, [name])
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            children.stop()
            pool.shutdown(wait=True)
        return self.report(names)

    def _together(self, pool: ThreadPoolExecutor, context: Context, names: Sequence[str]) -> None:
        waiting: set[Future[None]] = {pool.submit(self._section, context, name) for name in names}
        while waiting:  # with a timeout, since a wait without one hears no Ctrl-C
            done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
            for one in done:
                one.result()

    def _section(self, context: Context, name: str) -> None:
        module, began = SECTIONS[name], time.monotonic()
        rows = self.rows.setdefault(name, [])
        context = replace(context, tick=lambda: self.progress.tick(name))
        self.progress.begin(name, module.steps(context))
        run: Callable[[Context], Iterator[Row]] = module.run
        try:
            for row in run(context):
                rows.append(row)
        except Stopped:
            return
        except Exception as error:  # a mistake of a section must not lose what the others found
            id, what, why = f"{name}.section", "the section ended early", one_line(error, named=True)
            guarantees = name not in WITHOUT_GUARANTEE
            rows.append(failed(id, what, why) if guarantees else measured(id, what, None, note=why))
        finally:
            self.seconds[name] = time.monotonic() - began
            self.progress.end(name, rows)

    def report(self, names: Sequence[str]) -> Report:
        rows = [row for name in SECTIONS if name in names for row in self.rows.get(name, [])]
        return Report(self.about, rows, dict(self.seconds), self.interrupted)
