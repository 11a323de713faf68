"""A plan on 1 to 4096 devices: predicted time of an update, and what becomes the limit first. Pure.

The config fixes the global batch: more devices get fewer samples each, and beyond one virtual batch each they do not help.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from distxcept.batching import plan_batches
from distxcept.memory.candidates import REMAT_COST, STEP_COST_SAMPLES, Candidate
from distxcept.memory.estimate import NUMBER_BYTES
from distxcept.memory.links import Network
from distxcept.memory.planning import Proposal
from distxcept.memory.scaling import JITTER, WORTH_SAYING, Prediction, Work, predict, ready_parts
from distxcept.model.freezing import trained_parameters

LARGEST_WORLD = 4096
POSSIBLE_SPEEDS = (25, 50, 100, 200, 400, 800, 1600)
"""Of one device in images a second, where nobody tells."""


@dataclass(frozen=True)
class Scaling:
    network: Network
    global_batch: int
    rows: list[Prediction]
    """One for each world, ascending; the first is one device."""
    limits: list[str]
    """What stops it from going further, and what to change."""
    assumptions: list[str]

    def images_per_second(self, row: Prediction) -> float:
        return self.global_batch / row.seconds

    def efficiency(self, row: Prediction) -> float:
        """Of the speed that so many times one device would have."""
        return self.rows[0].seconds / (row.world * row.seconds)


@dataclass(frozen=True)
class Reduction:
    """What can be said of one world without the speed of a device."""

    network: Network
    world: int
    gradient_bytes: int
    seconds: float
    by_speed: dict[int, tuple[Scaling, Prediction]]
    """What it comes to if a device has this speed, in images a second."""
    assumptions: list[str]


def sample_seconds(
    candidate: Candidate, *, images_per_second: float | None, update_seconds: float | None
) -> float | None:
    """Of one sample without rematerialisation, from the speed of a device or from the time of the candidate's update."""
    if images_per_second:
        step = (candidate.micro_batch + STEP_COST_SAMPLES) * (1 + REMAT_COST * candidate.remat)
        return candidate.micro_batch / images_per_second / step
    return update_seconds / candidate.relative_seconds if update_seconds else None


def gradient_bytes(proposal: Proposal) -> int:
    """What crosses the network in an update."""
    config = proposal.config
    each = 2 if config.engine.compression == "fp16" else NUMBER_BYTES[config.precision][0]
    return each * sum(p.elements for p in trained_parameters(proposal.layout, config.model.freeze))


def scale(
    proposal: Proposal, network: Network, sample_seconds: float, *, world: int | None, jitter: float | None
) -> Scaling:
    """`sample_seconds` without rematerialisation. The proposal has a plan that fits."""
    config, chosen = proposal.config, proposal.chosen
    assert chosen is not None
    slower = 1 + REMAT_COST * chosen.remat
    work = Work(
        sample_seconds=sample_seconds * slower,
        step_seconds=sample_seconds * slower * STEP_COST_SAMPLES,
        gradient_bytes=gradient_bytes(proposal),
        ready_parts=ready_parts(proposal.layout, config.model.image_size),
        overlap=config.engine.overlap != "off" and config.engine.name != "mirrored",
        jitter=JITTER if jitter is None else jitter,
    )
    rows = [_row(proposal, work, network, one, chosen.micro_batch) for one in worlds(world)]
    assumptions = [f"links: {network}"]
    if jitter is None:
        assumptions.append(f"a device's time varies by {JITTER:.0%} from update to update (--jitter tells)")
    if config.engine.reduction == "ordered":
        assumptions.append("a fast reduction; an ordered one takes longer")
    limits = [*_batch_limit(proposal, rows), *_network_limit(proposal, work, network, rows, world)]
    return Scaling(network, config.batch.global_, rows, limits, assumptions)


def reduction(proposal: Proposal, network: Network, *, jitter: float | None) -> Reduction:
    """Of the proposal's own world. It has a plan that fits."""
    assert proposal.chosen is not None
    world, by_speed = proposal.batches.replicas, {}
    for speed in POSSIBLE_SPEEDS:
        seconds = sample_seconds(proposal.chosen, images_per_second=speed, update_seconds=None)
        assert seconds is not None
        scaling = scale(proposal, network, seconds, world=world, jitter=jitter)
        by_speed[speed] = (scaling, next(row for row in scaling.rows if row.world == world))
    assumptions = [*scaling.assumptions, "speeds of one device (--images-per-second tells, --probe measures)"]
    return Reduction(
        network, world, gradient_bytes(proposal), by_speed[speed][1].reduction_seconds, by_speed, assumptions
    )


def worlds(wanted: int | None) -> list[int]:
    """Powers of two, and the one that was asked for."""
    powers = [2**k for k in range(17) if 2**k <= max(LARGEST_WORLD, wanted or 1)]
    return sorted({*powers, *([wanted] if wanted else [])})


def _row(proposal: Proposal, work: Work, network: Network, world: int, micro: int) -> Prediction:
    batch = proposal.config.batch
    virtual_batches = batch.global_ // batch.virtual
    most = -(-virtual_batches // world)
    plan = plan_batches(
        samples=batch.global_,
        global_batch=batch.global_,
        virtual_batch=batch.virtual,
        micro_batch=min(micro, most * batch.virtual),
        replicas=world,
    )
    row = predict(
        work,
        samples=most * batch.virtual,
        micro_steps=plan.max_micro_steps,
        world=world,
        network=network,
    )
    return replace(row, idle_part=1 - virtual_batches / (world * most))


def _batch_limit(proposal: Proposal, rows: Sequence[Prediction]) -> list[str]:
    batch = proposal.config.batch
    number = batch.global_ // batch.virtual
    reached = next((row for row in rows if row.idle_part > WORTH_SAYING), None)
    if reached is None:
        return []
    return [
        f"from {reached.world} devices on the global batch is the limit: it has {number} virtual "
        f"batch{'es' * (number > 1)} of {batch.virtual}, and {reached.idle_part:.0%} of the devices' time would be idle; a "
        "larger batch.global or a smaller batch.virtual would change that, and the training too"
    ]


def _network_limit(
    proposal: Proposal, work: Work, network: Network, rows: Sequence[Prediction], world: int | None
) -> list[str]:
    reached = next((row for row in rows if row.network_part > WORTH_SAYING), None)
    if reached is None:
        return []
    at = next((row for row in rows if row.world == world and row.world >= reached.world), reached)
    sentence = (
        f"from {reached.world} devices on the network is the limit: {at.network_part:.0%} of an update on {at.world} "
        f"devices is waiting for {work.gradient_bytes / 1e6:.0f} MB of gradients"
    )
    ways = _ways(proposal, work, network, at)
    return [f"{sentence}; {', '.join(ways)}" if ways else sentence]


def _ways(proposal: Proposal, work: Work, network: Network, at: Prediction) -> list[str]:
    """What would make an update at least a twentieth shorter, most first."""
    engine, batch = proposal.config.engine, proposal.config.batch
    micro = at.samples if proposal.chosen is None else proposal.chosen.micro_batch
    faster = replace(network.between, bytes_per_second=4 * network.between.bytes_per_second)
    changes: dict[str, tuple[Work, Network]] = {
        "a network of four times the speed": (work, replace(network, between=faster)),
        "engine.network.hierarchical=true": (work, replace(network, algorithm="hierarchical")),
    }
    if engine.compression == "none" and engine.reduction == "fast":
        half = replace(work, gradient_bytes=work.gradient_bytes / 2)
        changes["engine.compression=fp16"] = (half, network)
    if not work.overlap and engine.name != "mirrored":
        changes["engine.overlap=auto"] = (replace(work, overlap=True), network)
    found = {
        name: _row(proposal, changed, links, at.world, micro).seconds
        for name, (changed, links) in changes.items()
    }
    ways = [
        f"{name} makes it {at.seconds / seconds:.2f} × as fast"
        for name, seconds in sorted(found.items(), key=lambda item: item[1])
        if seconds < 0.95 * at.seconds
    ]
    if batch.global_ // batch.virtual >= at.world:
        ways.append("a larger batch.global would have fewer reductions, and changes the training")
    return ways
