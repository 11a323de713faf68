"""From a config and a device to the plan of a run: all candidates, the one to take, and the ways out if there is none.

What was measured of a candidate takes the place of its estimate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from distxcept.batching import BatchPlan, plan_batches
from distxcept.cluster.compute import cores_for_parts
from distxcept.config.schema import Config
from distxcept.data.peek import KnownData
from distxcept.memory.budget import Budget, beside_update
from distxcept.memory.candidates import Candidate, Situation, candidates, choose
from distxcept.memory.estimate import EngineName
from distxcept.memory.probe import Measured
from distxcept.memory.ways_out import Way, ways_out
from distxcept.model.layout import Layout

ASSUMED_CLASSES = 1000


@dataclass(frozen=True)
class Proposal:
    config: Config
    budget: Budget
    batches: BatchPlan
    layout: Layout
    candidates: list[Candidate]
    chosen: Candidate | None
    situation: Situation
    assumptions: list[str]
    samples_known: bool
    measured: Mapping[tuple[int, bool], Measured] = field(default_factory=dict)
    """By micro batch and rematerialisation; empty as long as nothing has been tried."""

    @property
    def usable_bytes(self) -> int:
        return self.budget.usable_bytes

    @property
    def reduction_bytes(self) -> int:
        """What gradients on their way may hold while an update still computes; a trial, which is alone, has none."""
        return max(one.estimate.phases["micro step"]["reduction"] for one in self.candidates)

    def with_measured(self, chosen: Candidate | None, measured: Sequence[Measured]) -> "Proposal":
        """After a probe, which has chosen this one."""
        micro = own_micro(self.config) if chosen is None else chosen.micro_batch
        known = {(one.micro_batch, one.remat): one for one in measured}
        return replace(self, chosen=chosen, batches=self.batches.with_micro(micro), measured=known)

    def measured_of(self, candidate: Candidate | None) -> Measured | None:
        return None if candidate is None else self.measured.get((candidate.micro_batch, candidate.remat))

    def fits(self, candidate: Candidate) -> bool:
        """As measured: what is smaller than one that fits does too, what is larger than one that does not does not."""
        own = self.measured_of(candidate)
        if own is not None:
            return own.fits
        alike = [one for one in self.measured.values() if one.remat == candidate.remat]
        if any(one.fits and one.micro_batch >= candidate.micro_batch for one in alike):
            return True
        if any(not one.fits and one.micro_batch <= candidate.micro_batch for one in alike):
            return False
        return candidate.needed_bytes <= self.usable_bytes

    def seconds(self, candidate: Candidate) -> float:
        """Of one update: measured, or assumed in the same unit; without any measurement that is the time of a sample."""
        found = self.measured_of(candidate)
        if found is not None and found.seconds:
            return found.seconds
        reference = self.measured_of(self.chosen)
        if self.chosen is None or reference is None or not reference.seconds:
            return candidate.relative_seconds
        return candidate.relative_seconds * reference.seconds / self.chosen.relative_seconds

    def relative_speed(self, candidate: Candidate) -> float:
        """Against the fastest candidate, fitting or not."""
        return min(self.seconds(one) for one in self.candidates) / self.seconds(candidate)

    @cached_property
    def ways(self) -> list[Way]:
        """Out of having nothing that fits."""
        if self.chosen is not None:
            return []
        failed = [one.needed_bytes for one in self.candidates if self.measured_of(one)]
        # The estimate was too low for what has failed: only what it holds for smaller than that may fit.
        usable = min([self.usable_bytes, *(needed - 1 for needed in failed)])

        def smallest(changed: Config) -> Candidate:
            old = self.batches
            batches = build_plan(changed, old.samples, old.replicas, cores=old.cores)
            return min(candidates(changed, batches, self.situation), key=lambda one: one.needed_bytes)

        return ways_out(self.config, smallest, usable)


def make_plan(
    config: Config, budget: Budget, known: KnownData, *, replicas: int, engine: EngineName, threads: int = 1
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
    batches = build_plan(config, known.samples or config.batch.global_, replicas, cores=cores)
    found = candidates(config, batches, situation)
    budget = beside_update(budget)
    plan = Proposal(
        config, budget, batches, layout, found, None, situation, assumptions, known.samples is not None
    )
    return plan.with_measured(choose(found, plan.usable_bytes), [])


def build_plan(config: Config, samples: int, replicas: int, *, cores: int = 1) -> BatchPlan:
    """The batches of a config; where its micro batch is to be chosen, of one virtual batch."""
    return plan_batches(
        samples=samples,
        global_batch=config.batch.global_,
        virtual_batch=config.batch.virtual,
        micro_batch=own_micro(config),
        replicas=replicas,
        shares=config.engine.shares,
        keep_remainder=config.data.remainder == "keep",
        lanes=config.engine.lanes if config.engine.reduction == "ordered" else None,
        cores=cores,
    )


def own_micro(config: Config) -> int:
    """The config's own micro batch; one virtual batch where it is to be chosen."""
    return config.batch.virtual if config.batch.micro == "auto" else config.batch.micro
