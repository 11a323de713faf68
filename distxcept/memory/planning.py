"""From a config and a device to the plan of a run: all candidates, the one to take, and the ways out if there is none."""

from dataclasses import dataclass

from distxcept.batching import BatchPlan, plan_batches
from distxcept.cluster.compute import cores_for_parts
from distxcept.config.schema import Config
from distxcept.data.peek import Glimpse
from distxcept.memory.budget import Budget, beside_update
from distxcept.memory.candidates import Candidate, Situation, candidates, choose
from distxcept.memory.estimate import EngineName
from distxcept.memory.ways_out import Way, ways_out
from distxcept.model.layout import Layout

ASSUMED_CLASSES = 1000

SAFETY = 0.05
"""Part of the budget left free: the estimate is no measurement."""


@dataclass(frozen=True)
class Proposal:
    config: Config
    budget: Budget
    batches: BatchPlan
    layout: Layout
    candidates: list[Candidate]
    chosen: Candidate | None
    ways: list[Way]
    assumptions: list[str]
    samples_known: bool

    @property
    def usable_bytes(self) -> int:
        return round(self.budget.tensor_bytes * (1 - SAFETY))

    @property
    def reduction_bytes(self) -> int:
        """What gradients on their way may hold while an update still computes; a trial, which is alone, has none."""
        return max(one.estimate.phases["micro step"]["reduction"] for one in self.candidates)

    def fits(self, candidate: Candidate) -> bool:
        return candidate.needed_bytes <= self.usable_bytes

    def relative_speed(self, candidate: Candidate) -> float:
        """Against the fastest candidate, fitting or not."""
        return min(one.relative_seconds for one in self.candidates) / candidate.relative_seconds


def make_plan(
    config: Config, budget: Budget, known: Glimpse, *, replicas: int, engine: EngineName, threads: int = 1
) -> Proposal:
    assumptions = []
    classes = config.model.classes
    if classes == "auto":
        classes = known.classes or ASSUMED_CLASSES
        if known.classes is None:
            assumptions.append(
                f"{ASSUMED_CLASSES} classes, since the data was not opened (model.classes=N tells)"
            )
    padded = known.samples is None or known.samples % config.batch.global_ != 0
    masked = padded and config.data.remainder == "keep"
    layout = Layout.of(config.model, classes)
    cores = cores_for_parts(config, engine, on_cpu=budget.device == "cpu", cores=threads)
    situation = Situation(layout, budget.device, engine, masked, threads)

    def batches_of(config: Config) -> BatchPlan:
        return plan_batches(
            samples=known.samples or config.batch.global_,
            global_batch=config.batch.global_,
            virtual_batch=config.batch.virtual,
            micro_batch=config.batch.virtual if config.batch.micro == "auto" else config.batch.micro,
            replicas=replicas,
            shares=config.engine.shares,
            keep_remainder=config.data.remainder == "keep",
            lanes=config.engine.lanes if config.engine.reduction == "ordered" else None,
            cores=cores,
        )

    def all_of(config: Config) -> list[Candidate]:
        return candidates(config, batches_of(config), situation)

    found = all_of(config)
    budget = beside_update(budget)
    usable = round(budget.tensor_bytes * (1 - SAFETY))
    chosen = choose(found, usable)
    ways: list[Way] = []
    if chosen is None:
        ways = ways_out(
            config, lambda changed: min(all_of(changed), key=lambda one: one.needed_bytes), usable
        )
    batches = batches_of(config) if chosen is None else batches_of(config).with_micro(chosen.micro_batch)
    return Proposal(
        config, budget, batches, layout, found, chosen, ways, assumptions, known.samples is not None
    )
