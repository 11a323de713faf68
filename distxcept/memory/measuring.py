"""From a proposal to what its candidates really need on this device: requests for trials, and what came of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from distxcept.batching import BatchPlan
from distxcept.cluster.compute import in_effect
from distxcept.cluster.machine import processor_name
from distxcept.config.schema import Config
from distxcept.config.size import parse_size, show_size
from distxcept.memory.budget import CPU_OWN_BYTES, Budget
from distxcept.memory.candidates import Candidate
from distxcept.memory.memory_plan import MemoryPlan
from distxcept.memory.nvml import GpuState
from distxcept.memory.planning import Proposal
from distxcept.memory.probe import Cache, Measured, TrialFailed, probe, run_child

RELEVANT = ("model", "batch", "optimizer", "precision", "memory")
"""Sections of the config on which a measurement depends."""


def trial_request(proposal: Proposal, plan: BatchPlan, device: str, *, replica: int) -> dict[str, Any]:
    """What the child has to know, but for the candidate itself; `device` as a process counts that sees all cards.

    On a GPU its limit is that of the run, less what gradients on their way hold in the run only.
    """
    config, budget = proposal.config, proposal.budget
    limit_bytes = None if config.memory.limit is None else parse_size(config.memory.limit)
    if budget.device == "gpu":
        limit_bytes = budget.allocator_bytes
    if limit_bytes is not None:
        limit_bytes = max(1, limit_bytes - proposal.reduction_bytes)
    return {
        "config": config.model_dump(mode="json", by_alias=True),
        "classes": proposal.layout.classes,
        # One that is left without work in this update would have some with other shares.
        "virtual_batches": max(1, len(plan.blocks(plan.virtual_per_update)[replica])),
        "padded": plan.keep_remainder and plan.samples % plan.global_batch != 0,
        "device": device,
        "threads": config.engine.threads,
        "limit_bytes": limit_bytes,
        "cores": plan.cores,
    }


def measure(
    proposal: Proposal, trial: dict[str, Any], *, kind: str, notice: Callable[[str], None]
) -> tuple[Candidate | None, list[Measured]]:
    """The fastest candidate that really fits, by trials, or by what earlier trials of the same have found.

    A host without memory.limit stops no trial, and what it runs out of others miss too: there only what the estimate holds
    for possible is tried, and the peak decides.
    """
    unheld = proposal.budget.device == "cpu" and proposal.config.memory.limit is None
    options = [one for one in proposal.candidates if not unheld or one.needed_bytes <= proposal.usable_bytes]
    cache = Cache.of_user()
    relevant = {name: trial["config"][name] for name in RELEVANT}
    engine = proposal.config.engine
    settings = {**in_effect(), "jit": engine.compiles, "mix": _mix(proposal.config)}
    settings |= {"tf32": engine.allows_tf32, "deterministic": engine.is_deterministic}
    about = {name: value for name, value in trial.items() if name != "device"}  # equal cards are of one kind
    key = cache.key({**about, "config": relevant, "kind": kind, "settings": settings})
    known = {(m.micro_batch, m.remat): m for m in cache.read(key) or []}
    if options and not known:
        notice("measuring which micro batch fits and is fastest; the result is kept for the next start")

    def attempt(candidate: Candidate) -> Measured:
        name = (candidate.micro_batch, candidate.remat)
        new = name not in known
        if new:
            batch = {**trial["config"]["batch"], "micro": candidate.micro_batch}
            request = {**trial, "config": {**trial["config"], "batch": batch}, "remat": candidate.remat}
            known[name] = run_child(request, candidate.micro_batch)
        measured = _within(proposal.budget, known[name]) if unheld else known[name]
        if new:
            notice(describe(measured))
        return measured

    best, measured = probe(options, proposal.usable_bytes, attempt)
    cache.write(key, list(known.values()))
    return best, measured


def measure_jit(
    proposal: Proposal, trial: dict[str, Any], best: Candidate, *, kind: str, notice: Callable[[str], None]
) -> float | None:
    """Seconds of an update of this candidate with XLA. None where `engine.jit` leaves no choice, on a CPU, where XLA was
    always slower, and where it does not fit."""
    engine = proposal.config.engine
    if proposal.budget.device == "cpu" or engine.jit != "auto" or engine.is_deterministic:
        return None
    with_jit = proposal.config.model_copy(update={"engine": engine.model_copy(update={"jit": "on"})})
    request = {**trial, "config": with_jit.model_dump(mode="json", by_alias=True)}
    alone = replace(proposal, config=with_jit, candidates=[best])
    try:
        found, measured = measure(alone, request, kind=kind, notice=notice)
    except TrialFailed as error:
        notice(f"XLA could not be measured ({error}); it is not used")
        return None
    return measured[0].seconds if found is not None else None


def _within(budget: Budget, measured: Measured) -> Measured:
    """It does not fit if its peak, that of a whole process, is more than the budget."""
    most = budget.tensor_bytes + CPU_OWN_BYTES
    if measured.peak_bytes is None or measured.peak_bytes <= most:
        return measured
    reason = f"peak {show_size(measured.peak_bytes)}, of {show_size(most)} that a run would take"
    return replace(measured, fits=False, reason=reason)


def _mix(config: Config) -> list[float]:
    """All of the augmentation that is part of the step: the rest comes before it, on the host."""
    augment = config.data.augment
    return [augment.mixup, augment.cutmix] if augment else [0.0, 0.0]


def describe(measured: Measured) -> str:
    plan = MemoryPlan(measured.micro_batch, measured.remat)
    if not measured.fits:
        return f"  {plan}: does not fit ({measured.reason})"
    return (
        f"  {plan}: fits, peak {show_size(measured.peak_bytes or 0)}, {measured.seconds or 0:.2f} s an update"
    )


def nothing_fits(proposal: Proposal, measured: Sequence[Measured]) -> str:
    smallest = min(proposal.candidates, key=lambda one: one.needed_bytes)
    plan = MemoryPlan(smallest.micro_batch, smallest.remat)
    return (
        f"nothing fits in {show_size(proposal.budget.tensor_bytes)} of {proposal.budget.name}: {plan}, the smallest that "
        f"keeps the training the same, needs about {show_size(smallest.needed_bytes)} by the estimate "
        f"({len(measured)} tried); `distxcept plan CONFIG --probe` shows the ways out"
    )


def kind_of(device: str, cards: Sequence[GpuState]) -> str:
    """The model of a device: equal ones need one measurement. `cards` is what the driver tells of it, if it does."""
    if device.startswith("CPU"):
        return processor_name()
    return f"{cards[0].name} {cards[0].memory_total_bytes}" if cards else "GPU"
