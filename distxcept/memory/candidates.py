"""The plans from which one is chosen: micro batch × rematerialisation. None of them changes the update."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from distxcept.batching import BatchPlan
from distxcept.config.schema import Config
from distxcept.memory.estimate import Device, EngineName, Estimate, Work, estimate
from distxcept.model.layout import Layout

# Where these matter the probe measures.
STEP_COST_SAMPLES = 0.5
"""Assumed: what a micro step costs beside its samples."""
REMAT_COST = 0.3
"""Of running each block twice, measured on a CPU: 25 % more time at 299 px, 32 % at 128 px (docs/out_of_memory.md)."""
CORE_EACH_SAVES = 0.08
"""That cores do not wait for each other, measured on two of them (docs/speed.md)."""

HOST_UPDATES = 3
"""Updates whose samples a host holds: the one that runs and two that are read ahead."""


class Option(Protocol):
    """What the choice needs to know, estimated or measured."""

    @property
    def needed_bytes(self) -> int: ...

    @property
    def relative_seconds(self) -> float: ...


Chosen = TypeVar("Chosen", bound=Option)


@dataclass(frozen=True)
class Candidate:
    micro_batch: int
    remat: bool
    micro_steps: int
    """Of the busiest replica."""
    estimate: Estimate
    relative_seconds: float
    """Of one update, in units of the time of one sample."""

    @property
    def needed_bytes(self) -> int:
        return self.estimate.total_bytes


@dataclass(frozen=True)
class Situation:
    """Where a config is planned for."""

    layout: Layout
    device: Device
    engine: EngineName
    masked: bool
    """Updates with padding are to be expected."""
    threads: int = 1


def choose(options: Sequence[Chosen], budget_bytes: int) -> Chosen | None:
    """The fastest that fits; of equally fast ones the smaller. None if nothing fits."""
    fitting = [option for option in options if option.needed_bytes <= budget_bytes]
    return min(fitting, key=lambda option: (option.relative_seconds, option.needed_bytes), default=None)


def candidates(config: Config, plan: BatchPlan, situation: Situation) -> list[Candidate]:
    """Every micro batch that saves a micro step, without and with rematerialisation, largest first.

    A micro batch or `memory.remat` that the config fixes is the only one.
    """
    remats = {"auto": (False, True), "on": (True,), "off": (False,)}[config.memory.remat]
    micros = micro_batches(plan) if config.batch.micro == "auto" else [plan.micro_batch]
    return [
        candidate(config, plan.with_micro(micro), remat, situation) for remat in remats for micro in micros
    ]


def micro_batches(plan: BatchPlan) -> list[int]:
    """Of each possible number of micro steps the smallest micro batch, in samples, largest first."""
    if plan.lanes is not None:
        return [plan.virtual_batch]
    most = max(len(block) for block in plan.blocks(plan.virtual_per_update))
    sizes = {-(-most // steps) for steps in range(1, most + 1)}
    return sorted({plan.with_micro(size * plan.virtual_batch).micro_batch for size in sizes}, reverse=True)


def candidate(config: Config, plan: BatchPlan, remat: bool, situation: Situation) -> Candidate:
    """This plan, estimated."""
    blocks = plan.blocks(plan.virtual_per_update)
    samples = max(len(block) for block in blocks) * plan.virtual_batch
    work = Work(
        layout=situation.layout,
        image_size=config.model.image_size,
        micro_batch=min(plan.micro_batch, samples),
        virtual_batch=plan.virtual_batch,
        micro_steps=plan.max_micro_steps,
        precision=config.precision,
        optimizer=config.optimizer,
        freeze=config.model.freeze,
        remat=remat,
        masked=situation.masked,
        engine=situation.engine,
        overlaps=_overlaps(config, plan, situation),
        lanes=None if plan.lanes is None else plan.lanes // plan.replicas,
        device=situation.device,
        threads=situation.threads,
        updates_in_memory=HOST_UPDATES,
        samples_per_update=samples,
        side_by_side=plan.side_by_side,
    )
    seconds = (samples + STEP_COST_SAMPLES * plan.max_micro_steps) * (1 + REMAT_COST * remat)
    seconds *= 1 - CORE_EACH_SAVES * plan.core_each
    return Candidate(plan.micro_batch, remat, plan.max_micro_steps, estimate(work), seconds)


def _overlaps(config: Config, plan: BatchPlan, situation: Situation) -> bool:
    """Whether the training may reduce while it still computes; whether it does depends on the number of its updates."""
    return plan.replicas > 1 and plan.lanes is None and config.engine.overlap != "off"
