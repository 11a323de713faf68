"""What a micro step may hold in memory, the next smaller such plan, and the file that tells it to the next process.

    RUN/plan.json         written by the training: the plan in use
    RUN/memory_plan.json  written after a process was lost for want of memory: {"micro", "remat", "reason",
                          "failed": [{"micro", "remat"}, …]}, the upper limit of what the training may take;
                          remove it to let the run start from scratch

Smaller means: fewer virtual batches in a micro step, down to one; then rematerialisation. Neither changes the weights.
Everything else would, and is for the user to decide.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distxcept.batching import split_contiguous

FILE = "memory_plan.json"


@dataclass(frozen=True)
class MemoryPlan:
    micro: int
    remat: bool

    def __str__(self) -> str:
        return f"micro batch {self.micro}{' with rematerialisation' if self.remat else ''}"

    def at_most(self, limit: "MemoryPlan | None") -> "MemoryPlan":
        """This plan, or the limit where it holds more."""
        if limit is None:
            return self
        return MemoryPlan(min(self.micro, limit.micro), self.remat or limit.remat)

    def in_steps_of(self, virtual: int) -> "MemoryPlan":
        """A limit that was left by a run with other virtual batches may be none of these."""
        return MemoryPlan(max(virtual, self.micro - self.micro % virtual), self.remat)


@dataclass(frozen=True)
class InUse:
    """What plan.json says, as far as memory is concerned."""

    plan: MemoryPlan
    virtual: int
    largest_share: int
    """Samples of an update on the busiest replica: a larger micro batch than that needs no more memory."""


def next_smaller(now: InUse, *, remat_allowed: bool, halve: bool = False) -> MemoryPlan | None:
    """The largest plan with more micro steps than the one in use; `halve` where a try costs a new process."""
    share = now.largest_share // now.virtual
    micro = max(1, min(now.plan.micro // now.virtual, share))
    if micro > 1:
        steps = -(-share // (micro - 1))  # what the next smaller micro batch takes, evened out
        smaller = micro // 2 if halve else -(-share // steps)
        return MemoryPlan(smaller * now.virtual, now.plan.remat)
    if remat_allowed and not now.plan.remat:
        return MemoryPlan(now.virtual, True)
    return None


def read_plan_in_use(run_folder: Path) -> InUse | None:
    """None where the training has not got so far as to write one."""
    try:
        fields = json.loads((run_folder / "plan.json").read_text(encoding="utf-8"))
        virtual, micro = int(fields["virtual_batch"]), int(fields["micro_batch"])
        blocks = split_contiguous(int(fields["global_batch"]) // virtual, tuple(fields["shares"]))
        largest = max(len(block) for block in blocks) * virtual
        return InUse(MemoryPlan(micro, bool(fields.get("remat", False))), virtual, largest)
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return None


def write_memory_plan(run_folder: Path, plan: MemoryPlan, failed: MemoryPlan, reason: str) -> None:
    """Replaces the file; plans that failed are added to those it already names."""
    path = run_folder / FILE
    known = _read(path).get("failed", [])
    failures = [*known, asdict(failed)] if asdict(failed) not in known else known
    scratch = path.with_name(f".{FILE}.{os.getpid()}.writing")
    scratch.write_text(json.dumps({**asdict(plan), "reason": reason, "failed": failures}) + "\n")
    scratch.replace(path)


def read_memory_plan(run_folder: Path) -> MemoryPlan | None:
    """The upper limit that an earlier process left; None if there is none."""
    found = _read(run_folder / FILE)
    try:
        return MemoryPlan(int(found["micro"]), bool(found["remat"]))
    except (KeyError, TypeError, ValueError):
        return None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("failed", []), list) else {}
