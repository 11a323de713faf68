"""Which plan really fits and is fastest: the real step of a few candidates, each in a child process. No TensorFlow.

    without rematerialisation, then, if nothing fits, with it:
        try the candidate that the estimate holds for the largest that fits, then its neighbour, then bisect the rest
    of those that fit take the fastest

A child may be killed, abort or raise: it did not fit. What was measured is kept, so that the next start is instant; what
ended by something that need not come again is not.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from distxcept.cluster.machine import package_versions
from distxcept.errors import DistxceptError
from distxcept.memory.last_words import OUT_OF_MEMORY

TRIAL_MODULE = "distxcept.training.trial"
TRIAL_TIMEOUT_SECONDS = 1800
CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
"""How TensorFlow ends where it gets no memory; other signals come from outside."""
PACKAGES = ("distxcept", "tensorflow", "keras", "numpy")


class TrialFailed(DistxceptError):
    """For another reason than want of memory: a card in exclusive mode takes no second process, for one."""


class Candidate(Protocol):
    @property
    def micro_batch(self) -> int: ...
    @property
    def remat(self) -> bool: ...
    @property
    def needed_bytes(self) -> int: ...


C = TypeVar("C", bound=Candidate)


@dataclass(frozen=True)
class Measured:
    """What came of a trial."""

    micro_batch: int
    remat: bool
    fits: bool
    peak_bytes: int | None = None
    seconds: float | None = None
    reason: str = ""
    lasting: bool = True
    """Whether another trial would end the same: one that was killed or did not answer may have met with something else."""


def probe(
    candidates: Sequence[C], budget_bytes: int, attempt: Callable[[C], Measured]
) -> tuple[C | None, list[Measured]]:
    """The fastest candidate that fits, None if none does; and everything that was measured."""
    tried: list[Measured] = []
    for remat in (False, True):
        group = sorted((c for c in candidates if c.remat is remat), key=lambda c: c.micro_batch)
        if not group:
            continue
        tried += search(group, budget_bytes, attempt)
        fitting = [m for m in tried if m.fits]
        if fitting:
            best = min(fitting, key=lambda m: (m.seconds or 0.0, m.micro_batch))
            return next(c for c in group if c.micro_batch == best.micro_batch), tried
    return None, tried


def search(group: Sequence[C], budget_bytes: int, attempt: Callable[[C], Measured]) -> list[Measured]:
    """Tries members of a group in ascending order of memory until it is known which is the largest that fits."""
    fits, fails = -1, len(group)
    guess = max((k for k, c in enumerate(group) if c.needed_bytes <= budget_bytes), default=0)
    tried: list[Measured] = []
    while fails - fits > 1:
        if not tried:
            number = guess
        elif len(tried) == 1:
            number = fits + 1 if fits >= 0 else fails - 1
        else:
            number = (fits + fails) // 2
        measured = attempt(group[number])
        tried.append(measured)
        if measured.fits:
            fits = number
        else:
            fails = number
    return tried


def run_child(request: Mapping[str, Any], micro_batch: int) -> Measured:
    """A trial in a process of its own; whatever kills it means that it did not fit. TrialFailed where it cannot be made."""
    remat = bool(request["remat"])
    try:
        child = subprocess.run(
            [sys.executable, "-m", TRIAL_MODULE, str(os.getpid())],
            input=json.dumps(dict(request)),
            capture_output=True,
            text=True,
            timeout=TRIAL_TIMEOUT_SECONDS,
            env=child_environ(os.environ),
        )
    except subprocess.TimeoutExpired:
        reason = f"no answer within {TRIAL_TIMEOUT_SECONDS / 60:.0f} minutes"
        return Measured(micro_batch, remat, False, reason=reason, lasting=False)
    try:
        answer = json.loads(child.stdout.splitlines()[-1])
        return Measured(micro_batch, remat, **answer)
    except (IndexError, ValueError, TypeError):
        reason = f"the trial ended with {child.returncode}"
        last = "".join(child.stderr.strip().splitlines()[-1:])
        if child.returncode > 0 and "memory" not in last.lower() and not OUT_OF_MEMORY.search(last):
            raise TrialFailed(f"{reason}: {last[:500]}") from None
        crashed = child.returncode > 0 or -child.returncode in CRASHES
        return Measured(micro_batch, remat, False, reason=reason, lasting=crashed)


def child_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Without what a launcher tells its ranks: the child is none of them."""
    launchers = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "HOROVOD_", "MPI_", "HYDRA_")
    return {name: value for name, value in environ.items() if not name.startswith(launchers)}


class Cache:
    """Results by everything that they depend on."""

    def __init__(self, folder: Path):
        self._folder = folder

    @classmethod
    def of_user(cls) -> "Cache":
        try:
            base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        except RuntimeError:  # an account without a home, as in some containers: nothing can be kept
            base = os.devnull
        return cls(Path(base) / "distxcept" / "probes")

    def key(self, about: Mapping[str, Any]) -> str:
        text = json.dumps({"about": dict(about), "versions": package_versions(PACKAGES)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def read(self, key: str) -> list[Measured] | None:
        try:
            entries = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
            return [Measured(**entry) for entry in entries]
        except (OSError, ValueError, TypeError):
            return None

    def write(self, key: str, measured: Sequence[Measured]) -> None:
        """A cache that cannot be written costs time only."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            scratch = self._folder / f".{key}.{os.getpid()}"
            scratch.write_text(json.dumps([asdict(m) for m in measured if m.lasting]), encoding="utf-8")
            scratch.replace(self._folder / f"{key}.json")
        except OSError:
            return
