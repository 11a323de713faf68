"""How long an update takes on so many devices: compute, reduction, what of it is hidden, and waiting for the slowest. Pure.

    a replica computes             samples · seconds of a sample + micro steps · seconds of a micro step
    the slowest of N takes longer  by the jitter · the expected largest of N normal deviations
    gradients leave in buckets     each when its layers' gradients are ready, one after the other on the network
    what is left of that           when the backward pass has ended is waited for

The backward pass that can hide a reduction is that of the last micro step: only its gradients are final.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from statistics import NormalDist

from distxcept.memory.links import Network
from distxcept.model.layout import Layout

BACKWARD_PART = 2 / 3
"""Of a micro step: the backward pass has two products for each one of the forward pass."""
JITTER = 0.02
"""Assumed where it was not measured: how much a replica's time varies from update to update, as a part of it."""
BUCKETS = 4
"""As many as the Horovod engine has."""
WORTH_SAYING = 0.1
"""Part of the time that is lost before something counts as the limit."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one update costs, whoever computes it."""

    sample_seconds: float
    step_seconds: float = 0.0
    """Of a micro step beside its samples."""
    fixed_seconds: float = 0.0
    """Of an update beside its micro steps: applying it, Python, the launch of kernels."""
    gradient_bytes: float
    ready_parts: Sequence[float] = (0.25, 0.5, 0.75, 1.0)
    """Of each bucket, all of one size: the part of the backward pass after which it is ready."""
    overlap: bool = True
    jitter: float = JITTER


@dataclass(frozen=True, kw_only=True)
class Prediction:
    world: int
    samples: int
    """Of one update on the busiest replica."""
    compute_seconds: float
    waiting_seconds: float
    """For the slowest replica."""
    reduction_seconds: float
    """On the network, hidden or not."""
    exposed_seconds: float
    """Of the reduction, after the last backward pass."""
    idle_part: float = 0.0
    """Of the replicas' time, because the update's virtual batches do not divide evenly."""

    @property
    def seconds(self) -> float:
        """Of one update."""
        return self.compute_seconds + self.waiting_seconds + self.exposed_seconds

    @property
    def network_part(self) -> float:
        return self.exposed_seconds / self.seconds


def predict(work: Work, *, samples: int, micro_steps: int, world: int, network: Network) -> Prediction:
    """`samples` and `micro_steps` of the busiest replica in one update."""
    steps_seconds = samples * work.sample_seconds + micro_steps * work.step_seconds
    last_step = steps_seconds / max(1, micro_steps)
    reduction, exposed = _reduction(work, BACKWARD_PART * last_step, world, network)
    return Prediction(
        world=world,
        samples=samples,
        compute_seconds=steps_seconds + work.fixed_seconds,
        waiting_seconds=steps_seconds * work.jitter * expected_largest(world),
        reduction_seconds=reduction,
        exposed_seconds=exposed,
    )


def _reduction(work: Work, backward_seconds: float, world: int, network: Network) -> tuple[float, float]:
    """Seconds on the network, and of these the ones after the backward pass."""
    if world < 2:
        return 0.0, 0.0
    if not work.overlap:
        whole = network.reduction_seconds(work.gradient_bytes, world)
        return whole, whole
    each = network.reduction_seconds(work.gradient_bytes / len(work.ready_parts), world)
    end = 0.0
    for part in sorted(work.ready_parts):
        end = max(end, part * backward_seconds) + each
    return each * len(work.ready_parts), max(0.0, end - backward_seconds)


@cache
def expected_largest(number: int) -> float:
    """Of so many standard normal values (Blom's approximation)."""
    return NormalDist().inv_cdf((number - 0.375) / (number + 0.25)) if number > 1 else 0.0


def ready_parts(layout: Layout, image_size: int, buckets: int = BUCKETS) -> tuple[float, ...]:
    """After which part of the backward pass each bucket of gradients, the last layers' first, is ready.

    A layer's time is taken to be in proportion to its multiplications. Late layers have most of the weights and early
    ones most of the pixels, so much can leave early.
    """
    layers = products(layout, image_size)
    weights = list(accumulate(weight for weight, _ in reversed(layers)))
    work = list(accumulate(product for _, product in reversed(layers)))
    return tuple(
        next(
            done for held, done in zip(weights, work, strict=True) if held >= weights[-1] * k / buckets - 1e-6
        )
        / work[-1]
        for k in range(1, buckets + 1)
    )


def products(layout: Layout, image_size: int) -> list[tuple[float, float]]:
    """Of each layer: its weights, and the multiplications of one image's forward pass."""
    layers = []
    for convolution, side in layout.convolutions(image_size):
        kernels = sum(p.elements for p in convolution.parameters() if p.decays)
        layers.append((float(kernels), float(kernels * convolution.output_side(side) ** 2)))
    return [*layers, (float(layout.features * layout.classes),) * 2]
