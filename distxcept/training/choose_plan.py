"""The memory plan that a run starts with: the config's own, or the fastest that fits, the same on all ranks.

    batch.micro is a number              that one, with rematerialisation if by the estimate it fits only so; running out of
                                         memory is mended on the way
    a GPU, or a CPU with memory.limit    measured once: the real step of a few candidates, each in a child process
    else                                 by the estimate, within half of the host's free memory

An earlier process that was lost for want of memory has left its word in the run folder: no plan holds more than that.
"""

import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

from distxcept.batching import BatchPlan
from distxcept.config.schema import Config
from distxcept.data.host import free_memory, usable_cores
from distxcept.data.peek import KnownData
from distxcept.engines import Engine
from distxcept.errors import DoesNotFitError
from distxcept.memory.budget import READING_STEP_BYTES, Budget, cards_budget, host_budget
from distxcept.memory.estimate import EngineName
from distxcept.memory.measuring import kind_of, measure, measure_jit, nothing_fits, trial_request
from distxcept.memory.memory_plan import MemoryPlan
from distxcept.memory.nvml import GpuState
from distxcept.memory.planning import Proposal, make_plan
from distxcept.memory.probe import TrialFailed
from distxcept.memory.sharing import told_at_start
from distxcept.training.own_cards import device_for_child, pids_of_job

SHARE_UNITS = 8
"""Resolution of shares: the slowest replica gets so many."""
SHARES_DIFFER = 1.1
JIT_PAYS = 1.05
"""XLA has to be so much faster: it takes long to compile."""


@dataclass(frozen=True)
class Choice:
    micro: int
    remat: bool
    seconds: float | None = None
    """Of one virtual batch, where it was measured."""
    problem: str = ""
    jit: bool = False
    """XLA was measured too, and is faster."""


def choose_plan(
    config: Config,
    engine: Engine,
    plan: BatchPlan,
    classes: int,
    *,
    cards: Sequence[GpuState] = (),
    at_most: MemoryPlan | None = None,
    notice: Callable[[str], None] = lambda message: None,
) -> tuple[BatchPlan, MemoryPlan]:
    """Eager, on all ranks. `plan` has the config's micro batch, or any if that is auto.

    `cards`: what the driver told of this rank's cards before the training had taken memory of them.
    """
    _tell_of_all(engine, told_at_start(cards, pids_of_job(engine)), notice)
    if config.batch.micro != "auto" or plan.lanes is not None:
        chosen = MemoryPlan(plan.micro_batch, _remat_of_fixed(config, engine, plan, classes, cards))
    else:
        choices = _choices_of_all(config, engine, plan, classes, cards, notice)
        problems = [choice.problem for choice in choices if choice.problem]
        if problems:
            raise DoesNotFitError(problems[0])
        chosen = MemoryPlan(min(c.micro for c in choices), any(c.remat for c in choices))
        if all(choice.jit for choice in choices):
            engine.jit = True
        if config.engine.shares is None and (shares := shares_by_speed([c.seconds for c in choices])):
            plan = replace(plan, shares=shares)
            notice(f"the devices differ in speed: they share the work as {':'.join(map(str, shares))}")
    limited = chosen.at_most(at_most).in_steps_of(plan.virtual_batch)
    if limited != chosen:
        notice(f"an earlier process was lost for want of memory: going on with {limited} instead of {chosen}")
    agreed = json.loads(engine.exchange(json.dumps(asdict(limited)).encode())[0])
    limited = MemoryPlan(**agreed)
    return plan.with_micro(limited.micro), limited


def _remat_of_fixed(
    config: Config, engine: Engine, plan: BatchPlan, classes: int, cards: Sequence[GpuState]
) -> bool:
    """As `distxcept plan` chooses; all ranks do what one of them needs."""
    if config.memory.remat != "auto":
        return config.memory.remat == "on"
    likely = propose(config, engine, plan, classes, cards).chosen
    needed = likely is not None and likely.remat
    return any(json.loads(message) for message in engine.exchange(json.dumps(needed).encode()))


def _tell_of_all(engine: Engine, sentences: Sequence[str], notice: Callable[[str], None]) -> None:
    """Every rank looks at its own cards; the chief, whom the user hears, tells what all of them found."""
    own = json.dumps({"host": socket.gethostname(), "sentences": list(sentences)})
    for rank, message in enumerate(engine.exchange(own.encode())):
        found = json.loads(message)
        for sentence in found["sentences"]:
            if rank == engine.rank:
                notice(sentence)
            elif engine.is_chief:
                notice(f"rank {rank} on {found['host']}: {sentence}")


def _choices_of_all(
    config: Config,
    engine: Engine,
    plan: BatchPlan,
    classes: int,
    cards: Sequence[GpuState],
    notice: Callable[[str], None],
) -> list[Choice]:
    """The choice of each rank. Of each kind of device one rank measures, so that equal ones do not repeat it."""
    own = kind_of(engine.devices()[0], cards)
    kind = f"{own} {plan.shares[engine.local_replicas[0]]}"
    budget_bytes = _budget(config, engine, cards).tensor_bytes
    messages = engine.exchange(json.dumps([kind, budget_bytes]).encode())
    measuring = fullest_of_kind([tuple(json.loads(message)) for message in messages])
    mine = Choice(0, False)
    if cards and engine.is_chief and measuring[engine.rank] != engine.rank:
        notice(
            f"rank {measuring[engine.rank]} has the least memory among equal devices: it finds out what fits"
        )
    if measuring[engine.rank] == engine.rank:
        mine = _choose_here(engine, plan, propose(config, engine, plan, classes, cards), own, notice)
    found = [Choice(**json.loads(message)) for message in engine.exchange(json.dumps(asdict(mine)).encode())]
    return [found[rank] for rank in measuring]


def fullest_of_kind(devices: Sequence[tuple[str, int]]) -> list[int]:
    """Pure: from the (kind, usable bytes) of each rank to the rank that measures for it, the one with the least memory.

    Some MiB more or less are no difference: else now the one and now the other would measure, without the other's cache.
    """
    steps = [(usable_bytes // READING_STEP_BYTES, rank) for rank, (_, usable_bytes) in enumerate(devices)]
    fullest = {
        kind: min(step for step, (other, _) in zip(steps, devices, strict=True) if other == kind)
        for kind, _ in devices
    }
    return [fullest[kind][1] for kind, _ in devices]


def _choose_here(
    engine: Engine, plan: BatchPlan, proposal: Proposal, kind: str, notice: Callable[[str], None]
) -> Choice:
    likely = proposal.chosen or min(proposal.candidates, key=lambda one: one.needed_bytes)
    estimated = Choice(likely.micro_batch, likely.remat)
    if proposal.budget.device == "cpu" and proposal.config.memory.limit is None:
        return estimated
    replica = engine.local_replicas[0]
    trial = trial_request(proposal, plan, device_for_child(engine.devices()[0]), replica=replica)
    try:
        best, measured = measure(proposal, trial, kind=kind, notice=notice)
    except TrialFailed as error:
        # What does not fit after all is mended on the way; a run that could do its work must not end here.
        notice(f"nothing could be measured ({error}); going by the estimate")
        return estimated
    if best is None:
        return Choice(0, False, problem=nothing_fits(proposal, measured))
    seconds = next(m.seconds for m in measured if (m.micro_batch, m.remat) == (best.micro_batch, best.remat))
    with_jit = measure_jit(proposal, trial, best, kind=kind, notice=notice)
    jit = bool(seconds and with_jit and JIT_PAYS * with_jit < seconds)
    if with_jit and seconds:
        used = "it is used" if jit else "it is not used"
        notice(
            f"XLA takes {with_jit:.2f} s for an update that takes {seconds:.2f} s without: {used} (engine.jit)"
        )
    if jit:
        seconds = with_jit
    return Choice(best.micro_batch, best.remat, seconds and seconds / trial["virtual_batches"], jit=jit)


def propose(
    config: Config, engine: Engine, plan: BatchPlan, classes: int, cards: Sequence[GpuState]
) -> Proposal:
    """What the estimate says for this engine's devices; `cards` is what the driver tells of them."""
    return make_plan(
        config,
        _budget(config, engine, cards),
        KnownData(plan.samples, classes),
        replicas=plan.replicas,
        engine=cast(EngineName, engine.name),
        threads=config.engine.threads or usable_cores(),
    )


def _budget(config: Config, engine: Engine, cards: Sequence[GpuState]) -> Budget:
    if not engine.on_cpu:
        return cards_budget(cards, config.memory)
    on_host = engine.local_ranks * len(engine.local_replicas)
    return host_budget(free_memory(), on_host, engine.local_ranks, config.memory)


def shares_by_speed(seconds: Sequence[float | None]) -> tuple[int, ...] | None:
    """Work of each replica in proportion to its speed; None where they are alike or nothing was measured."""
    known = [s for s in seconds if s]
    if len(known) < len(seconds) or max(known) < SHARES_DIFFER * min(known):
        return None
    slowest = max(known)
    return tuple(round(SHARE_UNITS * slowest / s) for s in known)
