"""The memory plan that a run starts with: the config's own, or the fastest that fits, the same on all ranks.

    batch.micro is a number              that one; running out of memory is mended on the way
    a GPU, or a CPU with memory.limit    measured once: the real step of a few candidates, each in a child process
    else                                 by the estimate, within half of the host's free memory

An earlier process that was lost for want of memory has left its word in the run folder: no plan holds more than that.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distxcept.batching import BatchPlan
from distxcept.config.schema import Config
from distxcept.config.size import parse_size, show_size
from distxcept.data.host import free_memory, usable_cores
from distxcept.data.peek import Glimpse
from distxcept.engines import Engine
from distxcept.errors import DoesNotFitError
from distxcept.memory.budget import Budget, fullest_card_budget, host_budget
from distxcept.memory.candidates import Candidate
from distxcept.memory.memory_plan import MemoryPlan
from distxcept.memory.nvml import NvmlUnavailable, read_gpus
from distxcept.memory.planning import Proposal, make_plan
from distxcept.memory.probe import Cache, Measured, probe, run_child

HOST_PART = 0.5
"""Of the host's free memory that a run takes without having been told how much."""
SHARE_UNITS = 8
"""Resolution of shares: the slowest replica gets so many."""
SHARES_DIFFER = 1.1


@dataclass(frozen=True)
class Choice:
    micro: int
    remat: bool
    seconds: float | None = None
    """Of the busiest replica's update, where it was measured."""
    problem: str = ""


def choose_plan(
    config: Config,
    engine: Engine,
    plan: BatchPlan,
    classes: int,
    *,
    at_most: MemoryPlan | None = None,
    notice: Callable[[str], None] = lambda message: None,
) -> tuple[BatchPlan, MemoryPlan]:
    """Eager, on all ranks. `plan` has the config's micro batch, or any if that is auto."""
    fixed = MemoryPlan(plan.micro_batch, config.memory.remat == "on")
    if config.batch.micro != "auto" or plan.lanes is not None:
        chosen = fixed
    else:
        choices = _choices_of_all(config, engine, plan, classes, notice)
        problems = [choice.problem for choice in choices if choice.problem]
        if problems:
            raise DoesNotFitError(problems[0])
        chosen = MemoryPlan(min(c.micro for c in choices), any(c.remat for c in choices))
        if config.engine.shares is None and (shares := shares_by_speed([c.seconds for c in choices])):
            plan = replace(plan, shares=shares)
            notice(f"the devices differ in speed: they share the work as {':'.join(map(str, shares))}")
    limited = chosen.at_most(at_most)
    if limited != chosen:
        notice(f"an earlier process was lost for want of memory: going on with {limited} instead of {chosen}")
    agreed = json.loads(engine.exchange(json.dumps(asdict(limited)).encode())[0])
    limited = MemoryPlan(**agreed)
    return plan.with_micro(limited.micro), limited


def _choices_of_all(
    config: Config, engine: Engine, plan: BatchPlan, classes: int, notice: Callable[[str], None]
) -> list[Choice]:
    """The choice of each rank. Of each kind of device the first rank measures, so that equal ones do not repeat it."""
    device = engine.devices()[0]
    kind = f"{_kind_of(device)} {plan.shares[engine.local_replicas[0]]}"
    kinds = [message.decode() for message in engine.exchange(kind.encode())]
    mine = Choice(0, False)
    if kinds.index(kind) == engine.rank:
        mine = _choose_here(config, engine, plan, classes, kind, notice)
    found = [Choice(**json.loads(message)) for message in engine.exchange(json.dumps(asdict(mine)).encode())]
    return [found[kinds.index(kind)] for kind in kinds]


def _choose_here(
    config: Config, engine: Engine, plan: BatchPlan, classes: int, kind: str, notice: Callable[[str], None]
) -> Choice:
    proposal = propose(config, engine, plan, classes)
    on_cpu = proposal.budget.device == "cpu"
    if on_cpu and config.memory.limit is None:
        likely = proposal.chosen or min(proposal.candidates, key=lambda one: one.needed_bytes)
        return Choice(likely.micro_batch, likely.remat)
    trial = _trial(config, engine, plan, classes, proposal)
    best, measured = measure(proposal, trial, about={"kind": kind}, notice=notice)
    if best is None:
        return Choice(0, False, problem=_nothing_fits(proposal, measured))
    seconds = next(m.seconds for m in measured if (m.micro_batch, m.remat) == (best.micro_batch, best.remat))
    return Choice(best.micro_batch, best.remat, seconds)


def propose(config: Config, engine: Engine, plan: BatchPlan, classes: int) -> Proposal:
    """What the estimate says for this engine's devices."""
    on_cpu = engine.devices()[0].startswith("CPU")
    budget = None if on_cpu else _card_budget(config)
    if budget is None:
        part = 1.0 if config.memory.limit is not None else HOST_PART
        on_host = engine.local_ranks * len(engine.local_replicas)
        budget = host_budget(round(free_memory() * part), on_host, engine.local_ranks, config.memory)
    return make_plan(
        config,
        budget,
        Glimpse(plan.samples, classes),
        replicas=plan.replicas,
        engine=engine.name,  # type: ignore[arg-type]
        threads=config.engine.threads or usable_cores(),
    )


def _card_budget(config: Config) -> Budget | None:
    gpus = read_gpus()
    return None if isinstance(gpus, NvmlUnavailable) else fullest_card_budget(gpus, config.memory)


def _trial(
    config: Config, engine: Engine, plan: BatchPlan, classes: int, proposal: Proposal
) -> dict[str, Any]:
    """What the child has to know, but for the candidate itself."""
    budget = proposal.budget
    limit = config.memory.limit
    replica = engine.local_replicas[0]
    block = plan.blocks(plan.virtual_per_update)[replica]
    return {
        "config": config.model_dump(mode="json", by_alias=True),
        "classes": classes,
        "virtual_batches": len(block),
        "padded": plan.keep_remainder and plan.samples % plan.global_batch != 0,
        "device": engine.devices()[0],
        "threads": config.engine.threads,
        "limit_bytes": parse_size(limit)
        if limit is not None
        else None
        if budget.device == "cpu"
        else budget.tensor_bytes,
    }


def measure(
    proposal: Proposal, trial: dict[str, Any], *, about: dict[str, Any], notice: Callable[[str], None]
) -> tuple[Candidate | None, list[Measured]]:
    """The fastest candidate that really fits, by trials, or by what earlier trials of the same have found."""
    cache = Cache.of_user()
    onednn = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "")
    relevant = {
        k: v
        for k, v in trial["config"].items()
        if k in ("model", "batch", "optimizer", "precision", "memory")
    }
    key = cache.key({**about, **trial, "config": relevant, "onednn": onednn})
    known = cache.read(key)
    if known is None:
        notice("measuring which micro batch fits and is fastest; the result is kept for the next start")

    def attempt(candidate: Candidate) -> Measured:
        for found in known or []:
            if (found.micro_batch, found.remat) == (candidate.micro_batch, candidate.remat):
                return found
        config = {**trial["config"], "batch": {**trial["config"]["batch"], "micro": candidate.micro_batch}}
        measured = run_child({**trial, "config": config, "remat": candidate.remat}, candidate.micro_batch)
        notice(describe(measured))
        return measured

    best, measured = probe(proposal.candidates, proposal.usable_bytes, attempt)
    cache.write(key, measured)
    return best, measured


def describe(measured: Measured) -> str:
    plan = MemoryPlan(measured.micro_batch, measured.remat)
    if not measured.fits:
        return f"  {plan}: does not fit ({measured.reason})"
    return (
        f"  {plan}: fits, peak {show_size(measured.peak_bytes or 0)}, {measured.seconds or 0:.2f} s an update"
    )


def _nothing_fits(proposal: Proposal, measured: Sequence[Measured]) -> str:
    smallest = min(proposal.candidates, key=lambda one: one.needed_bytes)
    plan = MemoryPlan(smallest.micro_batch, smallest.remat)
    return (
        f"nothing fits in {show_size(proposal.budget.tensor_bytes)} of {proposal.budget.name}: {plan}, the smallest that "
        f"keeps the training the same, needs about {show_size(smallest.needed_bytes)} ({len(measured)} tried); distxcept "
        "plan shows the ways out"
    )


def _kind_of(device: str) -> str:
    """The name of a device's model: equal ones need one measurement."""
    if device.startswith("CPU"):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
        return "CPU"
    import tensorflow as tf

    number = int(device.partition(":")[2])
    details = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[number])
    return str(details.get("device_name", device))


def shares_by_speed(seconds: Sequence[float | None]) -> tuple[int, ...] | None:
    """Work of each replica in proportion to its speed; None where they are alike or nothing was measured."""
    known = [s for s in seconds if s]
    if len(known) < len(seconds) or max(known) < SHARES_DIFFER * min(known):
        return None
    slowest = max(known)
    return tuple(round(SHARE_UNITS * slowest / s) for s in known)
