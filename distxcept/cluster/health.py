"""Signs of life of this rank, and an end in time when a peer has none: one thread beside the training.

The thread proves that the process runs; how far it is stands in the status for people to read, and is never judged:
an update, a trace or an evaluation may take as long as it likes. When a peer is lost, the main thread hangs in a
reduction that cannot complete, or gets an error that is not the cause. So this thread tells the cause and ends the process.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from distxcept.cluster.peers import Loss, Peer, PeerWatch
from distxcept.cluster.status import RankStatus, State, failed, own_status, write_status
from distxcept.errors import PeerLostError

TICK_SECONDS = 1.0
STEADY_SECONDS = 2.0
"""How often the status is written at least; the watchers' patience is many times that."""
OWN_END_SECONDS = 3.0
"""A peer that names its error has taken a decision that this rank may be about to take too: time to do so."""


class NoHealth:
    """For a loop that nobody watches."""

    def updated(self, update: int) -> None: ...

    @contextmanager
    def updating(self) -> Iterator[None]:
        yield


class Health(NoHealth):
    """`start` before the model is built, `end` when the outcome is known."""

    def __init__(self, run_folder: Path, rank: int, ranks: int, peers: list[Peer], timeout: float):
        self._folder, self._timeout = run_folder, timeout
        self._watch = PeerWatch(run_folder, [peer for peer in peers if peer.rank != rank], timeout)
        self._status = own_status(rank, ranks)
        self._lock = threading.Lock()
        self._ended = self._spoken = False
        self._wake = threading.Event()
        self._gone = threading.Event()
        self._written: float | None = None
        self._shown = self._status
        self._stop_seen: float | None = None
        self._updating: float | None = None
        self._longest = 0.0
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)
        self.say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)
        self.before_exit: Callable[[], None] = lambda: None
        """Called before the process is ended in the middle of its work; has to be short."""

    def start(self) -> None:
        self._beat()
        self._watch.look(time.monotonic())  # who is here now can be missed later
        self._thread.start()

    def updated(self, update: int) -> None:
        """So many updates of the run are done."""
        self._status = replace(self._status, state="running", update=update)

    @contextmanager
    def updating(self) -> Iterator[None]:
        """While the main thread may wait for the other ranks."""
        began = self._updating = time.monotonic()
        try:
            yield
        finally:
            self._updating = None
        self._longest = max(self._longest, time.monotonic() - began)

    def stop_requested(self) -> None:
        """A signal came: perhaps because a peer died, so look at once."""
        self._stop_seen = self._stop_seen or time.monotonic()
        self._watch.forget()
        self._wake.set()

    def end(
        self, state: State, exit_code: int, error: BaseException | None = None, loss: Loss | None = None
    ) -> None:
        """The last status of this process, after `error` or the `loss` of a peer. From now on nobody is watched."""
        with self._lock:
            self._ended = True
            if loss is not None:
                self._status = self._after(loss)
            elif error is not None:
                self._status = failed(self._status, error, exit_code)
            else:
                self._status = replace(self._status, state=state, exit_code=exit_code, time=time.time())
            with suppress(OSError):
                write_status(self._folder, self._status)
        self._gone.set()
        self._wake.set()

    def cause_elsewhere(self, seconds: float) -> Loss | None:
        """Whether a peer's loss explains the error that this rank has got; it may take a moment to show."""
        deadline = time.monotonic() + seconds
        while True:
            with self._lock:
                self._watch.forget()
                loss = self._watch.look(time.monotonic())
            if loss is not None or not self._watch.peers or time.monotonic() > deadline:
                return loss
            time.sleep(0.1)

    def tell_of(self, loss: Loss, say: Callable[[], None]) -> None:
        """Lets the user know, once. A rank names its own error; a loss without a word is told by the lowest rank that is
        left, there by the watch, or by the main thread if the loss brings an error about before the watch has seen it.
        A rank that was stopped and is woken may read of its own loss: the others have told it.
        """
        first = self._watch.first_witness(loss.rank)
        if loss.told or loss.rank == self._status.rank or (first is not None and first < self._status.rank):
            return
        with self._lock:  # until it is said: the other thread ends the process
            if not self._spoken:
                self._spoken = True
                say()

    def _run(self) -> None:
        while not self._gone.is_set():
            self._wake.wait(TICK_SECONDS)
            self._wake.clear()
            with self._lock:
                if self._ended:
                    return
                self._beat()
                loss = self._watch.look(time.monotonic(), own_status_written=self._writes())
            loss = loss or self._no_answer()
            if loss is not None:
                self._leave(loss)

    def _beat(self) -> None:
        """A full disk must not look like a death to the others: they see that their own status fails too."""
        now = time.monotonic()
        status = self._status
        if self._written is not None and now - self._written < STEADY_SECONDS and status == self._shown:
            return
        with suppress(OSError):
            write_status(self._folder, replace(status, time=time.time()))
            self._written, self._shown = now, status

    def _writes(self) -> bool:
        return self._written is not None and time.monotonic() - self._written < self._timeout / 2

    def _no_answer(self) -> Loss | None:
        """After a request to stop, all ranks meet in the next reduction; one that never comes is not waited for."""
        stop, began = self._stop_seen, self._updating
        if stop is None or began is None or not self._watch.peers or not self._longest:
            return None
        waited = time.monotonic() - max(stop, began)
        if waited < self._timeout + 3 * self._longest:
            return None
        message = f"no answer from the other ranks for {waited:.0f} s after the request to stop"
        return Loss(
            None, f"{message}; the last snapshot is whole, the updates since then are lost", told=False
        )

    def _leave(self, loss: Loss) -> None:
        with self._lock:
            if self._ended:
                return
            with suppress(OSError):
                write_status(self._folder, self._after(loss))
        self.tell_of(loss, lambda: self.say(f"distxcept train: {loss.message}"))
        if self._gone.wait(OWN_END_SECONDS if loss.told else 0.5):
            return
        self.before_exit()
        with self._lock:
            if self._ended:
                return
            with suppress(OSError):
                self._log(loss.message)
                write_status(self._folder, self._after(loss))
            os._exit(PeerLostError.exit_code)

    def _after(self, loss: Loss) -> RankStatus:
        return replace(
            failed(self._status, PeerLostError(loss.message), PeerLostError.exit_code), lost=loss.rank
        )

    def _log(self, message: str) -> None:
        path = self._folder / "logs" / f"rank-{self._status.rank}.log"
        with path.open("a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} ended: {message}\n")
