"""One supervised process: its output goes to a log and to the terminal, and it dies with us.

It has a session of its own, so that Ctrl-C at the terminal reaches us alone: mpirun would kill its ranks on it before they
could save. Single-threaded on purpose: code that runs between fork and exec is safe only then.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

import psutil

from distxcept.cluster.tether import die_with_parent
from distxcept.errors import ConfigError

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
GRACE_SECONDS = 30.0
"""From the request to save until the process is killed."""

FORWARDING = ("mpirun", "orterun", "prterun", "mpiexec", "mpiexec.hydra", "mpirun.mpich", "srun")
"""Programs that hand SIGUSR1 to every rank."""

_POLL_SECONDS = 0.1
_DRAIN_SECONDS = 1.0


class StopRequests:
    """While entered, signals that ask us to stop are counted instead of obeyed."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.count = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopRequests":
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.first = self.first or number
        self.count += 1


class Child:
    """Runs a command; `wait` pumps its output until it ends."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        log: Path,
        terminals: tuple[IO[bytes], IO[bytes]],
        clean: Callable[[bytes], bytes] | None = None,
    ):
        """`terminals`: where its stdout and stderr are shown. `clean` is applied to whole lines before."""
        parent_pid = os.getpid()
        try:
            self._process = subprocess.Popen(
                list(command),
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(parent_pid),
            )
        except OSError as error:
            raise ConfigError(f"{command[0]} cannot be started: {error.strerror}") from error
        self.pid = self._process.pid
        self._log = log.open("ab", buffering=0)
        self._clean = clean
        self._selector = selectors.DefaultSelector()
        for pipe, terminal in zip((self._process.stdout, self._process.stderr), terminals, strict=True):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, _Stream(terminal))

    def wait(self, requests: StopRequests, grace_seconds: float = GRACE_SECONDS) -> int:
        """Until the process ends; a request to stop is passed on as SIGUSR1, on which every rank saves.

        mpirun and srun hand SIGUSR1 to their ranks and kill them on SIGTERM. A second request, or one that is not
        obeyed in time, ends the process.
        """
        deadline: float | None = None
        while self._process.poll() is None:
            self._pump(_POLL_SECONDS)
            if requests.count and deadline is None:
                self._ask_to_save()
                deadline = time.monotonic() + grace_seconds
            if deadline is not None and (requests.count > 1 or time.monotonic() > deadline):
                self._process.kill()
        self._drain()
        return self._process.returncode

    def _ask_to_save(self) -> None:
        """To whoever hands it on: horovodrun puts a shell before mpirun, and that would die of it."""
        with contextlib.suppress(psutil.Error):
            own = psutil.Process(self.pid)
            for process in [own, *own.children(recursive=True)]:
                if process.name() in FORWARDING:
                    process.send_signal(signal.SIGUSR1)
                    return
        self._process.send_signal(signal.SIGUSR1)

    def _drain(self) -> None:
        """What is left in the pipes; a process that survived may hold them open, so not for ever."""
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._selector.get_map() and time.monotonic() < deadline:
            self._pump(_POLL_SECONDS)
        for key in list(self._selector.get_map().values()):
            self._close(key)
        self._log.close()

    def _pump(self, seconds: float) -> None:
        if not self._selector.get_map():
            time.sleep(seconds)
            return
        for key, _ in self._selector.select(seconds):
            data = os.read(key.fd, 1 << 16)
            if data:
                self._show(key.data, data if self._clean is None else key.data.whole_lines(data, self._clean))
            else:
                self._close(key)

    def _close(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        key.fileobj.close()  # type: ignore[union-attr]  # registered are pipes, never bare numbers
        if key.data.rest and self._clean is not None:
            self._show(key.data, self._clean(key.data.rest))

    def _show(self, stream: "_Stream", data: bytes) -> None:
        """A terminal that was closed or a disk that is full must not end the job."""
        with contextlib.suppress(OSError, ValueError):
            self._log.write(data)
        with contextlib.suppress(OSError, ValueError):
            stream.terminal.write(data)
            stream.terminal.flush()


class _Stream:
    def __init__(self, terminal: IO[bytes]):
        self.terminal = terminal
        self.rest = b""

    def whole_lines(self, data: bytes, clean: Callable[[bytes], bytes]) -> bytes:
        *lines, self.rest = (self.rest + data).split(b"\n")
        return b"".join(clean(line) + b"\n" for line in lines)
