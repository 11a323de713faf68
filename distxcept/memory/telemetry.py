"""A thread that looks at the devices every few seconds while the training runs. No TensorFlow.

    the training's thread                              the telemetry's thread
      with telemetry:                    starts →        every few seconds:
          after_update(…)    where it is →                   take a sample
          take_notices()     ← what to say                   let the judge look at it
                                                             write it
                                         ends →          a last sample

The training is never held up: only the end of a run waits for the thread, and that not for long. Whatever goes
wrong ends the telemetry with one notice, never the training.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, Self

from distxcept.errors import one_line
from distxcept.memory.notices import Judge, Notice
from distxcept.memory.nvml import GpuState
from distxcept.memory.sample import Host, Moment, Sample, Settled

PATIENCE_SECONDS = 5.0
"""How long the end of a run waits for a driver or a disk that does not answer."""


class Output(Protocol):
    """Where samples and notices go. Used on the telemetry's thread alone."""

    def open(self, updates_done: int) -> None: ...

    def write(self, sample: Sample, notices: Sequence[Notice]) -> None: ...

    def of_other_ranks(self) -> list[Notice]:
        """What other ranks have noticed since the last call."""
        ...

    def close(self) -> None: ...


class Telemetry:
    def __init__(
        self,
        *,
        every_seconds: float | None,
        judge: Judge | None = None,
        output: Output | None = None,
        read_cards: Callable[[], Sequence[GpuState]] = tuple,
        device_bytes: Callable[[], tuple[int, ...]] = tuple,
    ):
        """`every_seconds` None: no thread, no samples."""
        self._every, self._judge, self._output = every_seconds, judge, output
        self._read_cards, self._device_bytes = read_cards, device_bytes
        self._host = Host()
        self._moment, self._updates_before = Moment(), 0
        self._settled: Settled | None = None
        self._wants_settled = False
        self._last = time.monotonic(), 0.0
        self._notices: deque[Notice] = deque()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def starts_at(self, update: int) -> None:
        """Before the thread starts: updates that the run has done."""
        self._moment, self._updates_before = Moment(update=update), update

    def __enter__(self) -> Self:
        if self._every is not None:
            thread = threading.Thread(target=self._run, name="distxcept-telemetry", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # a tight memory.limit leaves no room for its stack
                self._give_up(error)
            else:
                self._thread = thread
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_SECONDS)

    def after_update(self, update: int, *, micro_batch: int, remat: bool, waited_seconds: float) -> None:
        """On the training's thread; microseconds."""
        self._moment = Moment(
            phase="train",
            update=update,
            micro_batch=micro_batch,
            remat=remat,
            waited_seconds=waited_seconds,
        )
        if self._wants_settled:
            self._wants_settled = False
            self._settled = Settled(
                update=update, host_bytes=self._host.own_bytes(), device_bytes=self._device_bytes()
            )

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """On the training's thread."""
        before, self._moment = self._moment, replace(self._moment, phase="evaluate")
        yield
        self._moment = before

    def take_notices(self) -> list[Notice]:
        """What is new, on the training's thread."""
        found = []
        while self._notices:
            found.append(self._notices.popleft())
        return found

    def _run(self) -> None:
        try:
            if self._output:
                self._output.open(self._updates_before)
            try:
                self._look()
                while not self._stop.wait(self._every):
                    self._look()
                self._look()
            finally:
                if self._output:
                    self._output.close()
        except Exception as error:  # whatever it is, the training has to go on
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        text = f"telemetry ends here, the training goes on: {one_line(error, named=True)}"
        self._notices.append(Notice("telemetry_failed", "telemetry", text))

    def _look(self) -> None:
        sample = self._take()
        notices = self._judge.look(sample) if self._judge else []
        self._notices.extend(notices)
        if self._output:
            self._output.write(sample, notices)
            self._notices.extend(self._output.of_other_ranks())

    def _take(self) -> Sample:
        moment, now = self._moment, time.monotonic()
        (then, waited_then), self._last = self._last, (now, moment.waited_seconds)
        settled, self._settled = self._settled, None
        self._wants_settled = True
        return Sample(
            time=time.time(),
            moment=moment,
            data_wait=min(1.0, (moment.waited_seconds - waited_then) / max(now - then, 1e-3)),
            rss_bytes=self._host.rss_bytes(),
            cpu_share=self._host.cpu_share(),
            cards=tuple(self._read_cards()),
            settled=settled,
        )
