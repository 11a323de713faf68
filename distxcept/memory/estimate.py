"""What an update needs on its device: bytes by kind, worked out from the layout. Pure, instant, no TensorFlow.

    state        weights, optimizer slots, moving average: always there
    micro step   forward and backward of one micro batch, one at a time: layout, layer by layer (micro_step.py)
    reduce       gradients on their way from replica to replica, pack by pack
    apply        gradients and, of one pack at a time, what the optimizer makes of it

The phases follow each other, so the peak is that of the largest one; but where ranks reduce while the last backward
pass still runs, the buffers of the reduction count for the micro step too. Not among it is what TensorFlow takes for
itself before the first tensor: see `budget.py`.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from distxcept.batching import MAX_PACK_BYTES
from distxcept.config.optimizer import OptimizerSection
from distxcept.config.schema import Precision
from distxcept.memory.layers import Conditions
from distxcept.memory.liveness import Bytes, Kind
from distxcept.memory.micro_step import micro_step_peak
from distxcept.memory.workspace import CpuWorkspace, GpuWorkspace
from distxcept.model.freezing import frozen_blocks, trained_parameters
from distxcept.model.layout import Layout
from distxcept.model.packs import pack_trained

Phase = Literal["micro step", "reduce", "apply"]
Device = Literal["cpu", "gpu"]
EngineName = Literal["single", "mirrored", "horovod"]

KINDS: dict[Kind, str] = {
    "weights": "weights",
    "slots": "optimizer slots",
    "moving_average": "moving average",
    "gradients": "gradients",
    "accumulators": "gradient sums",
    "reduction": "reduction buffers",
    "activations": "activations",
    "workspace": "workspace",
    "input": "input",
}

NUMBER_BYTES: dict[Precision, tuple[int, int]] = {
    "float32": (4, 4),
    "mixed_float16": (4, 2),
    "mixed_bfloat16": (4, 2),
    "float64": (8, 8),
}
"""Of weights and sums, and of the forward pass."""

# Horovod copies what it sends together into one buffer, by default of this size at most.
HOROVOD_FUSION_BYTES = 128 * 2**20

# Vectors of a pack that an optimizer's step holds beside what it was given: intermediate and new ones.
STEP_VALUES = {"sgd": 4, "rmsprop": 5, "adam": 6, "adamw": 6, "lamb": 7}


@dataclass(frozen=True, kw_only=True)
class Work:
    """An update of one replica, as far as its memory is concerned."""

    layout: Layout
    image_size: int
    micro_batch: int
    virtual_batch: int
    micro_steps: int = 1
    precision: Precision = "float32"
    optimizer: OptimizerSection = field(default_factory=OptimizerSection)
    freeze: str | None = None
    remat: bool = False
    masked: bool = False
    """Updates with padding or unreadable images occur; their batch norm cannot use the fused kernel."""
    engine: EngineName = "single"
    overlaps: bool = False
    """Gradients leave while the last micro step still runs, as they may with several ranks."""
    lanes: int | None = None
    """Partial sums that this replica keeps for an ordered reduction."""
    device: Device = "gpu"
    threads: int = 2
    """Of a CPU device."""
    updates_in_memory: int = 1
    """On a CPU device: the samples of the update and of those read ahead lie in the same memory."""
    samples_per_update: int | None = None
    """Of this replica."""
    side_by_side: int = 1
    """Parts of a micro step that run at once, each with gradients of its own."""


@dataclass(frozen=True)
class Estimate:
    phases: dict[Phase, Bytes]

    @cached_property
    def phase(self) -> Phase:
        """The one that needs most."""
        return max(self.phases, key=lambda phase: self.phases[phase].total())

    @property
    def kinds(self) -> dict[Kind, int]:
        """Bytes by kind at the peak, in the order of `KINDS`."""
        return {kind: self.phases[self.phase][kind] for kind in KINDS}

    @property
    def total_bytes(self) -> int:
        return self.phases[self.phase].total()


def estimate(work: Work) -> Estimate:
    variable_bytes, _ = NUMBER_BYTES[work.precision]
    trained = trained_parameters(work.layout, work.freeze)
    gradient_bytes = sum(p.elements for p in trained) * variable_bytes
    state: Bytes = Counter(
        {
            "weights": sum(p.elements for p in work.layout.parameters) * variable_bytes,
            "slots": len(work.optimizer.slot_names) * gradient_bytes,
            "moving_average": gradient_bytes if work.optimizer.ema is not None else 0,
            "input": _input_bytes(work),
        }
    )
    # Parts that run at once do not need most at the same moment: half of the gradients of the others, as measured.
    others = (work.side_by_side - 1) * gradient_bytes // 2
    sums: Bytes = Counter({"accumulators": _sums(work) * gradient_bytes, "gradients": others})
    reduction = _reduction(work, gradient_bytes)
    # An upper bound: by the time that the last buffer is filled some activations are gone.
    on_their_way: Bytes = Counter({"reduction": reduction["reduction"] if work.overlaps else 0})
    packs = pack_trained(trained, number_bytes=variable_bytes, max_bytes=MAX_PACK_BYTES)
    largest = max((pack.elements for pack in packs), default=0) * variable_bytes
    step_values = STEP_VALUES[work.optimizer.name] + (work.optimizer.ema is not None)
    return Estimate(
        {
            "micro step": state + sums + on_their_way + _micro_step(work),
            "reduce": state + reduction,
            "apply": state + Counter({"gradients": gradient_bytes, "workspace": step_values * largest}),
        }
    )


def _sums(work: Work) -> int:
    """Sums over micro steps that are alive at once, each as large as all gradients."""
    return 1 + work.lanes if work.lanes is not None else int(work.micro_steps * work.side_by_side > 1)


def _micro_step(work: Work) -> Bytes:
    variable_bytes, compute_bytes = NUMBER_BYTES[work.precision]

    def of(masked: bool) -> Bytes:
        given = Conditions(
            samples=work.micro_batch,
            image_size=work.image_size,
            compute_bytes=compute_bytes,
            variable_bytes=variable_bytes,
            workspace=CpuWorkspace(work.threads) if work.device == "cpu" else GpuWorkspace(),
            virtual_batches=work.micro_batch // work.virtual_batch,
            remat=work.remat,
            masked=masked,
            frozen_blocks=frozen_blocks(work.layout, work.freeze),
        )
        return micro_step_peak(work.layout, given)

    if work.precision == "float64" or work.lanes is not None:  # then the fused kernel is never used
        return of(masked=True)
    return max([of(masked=False), *([of(masked=True)] if work.masked else [])], key=Counter.total)


def _reduction(work: Work, gradient_bytes: int) -> Bytes:
    if work.lanes is not None:
        # The lanes, stacked, and what their first sum takes out of the stack.
        return Counter(
            {"accumulators": work.lanes * gradient_bytes, "reduction": 2 * work.lanes * gradient_bytes}
        )
    if work.engine == "single":
        return Counter({"gradients": gradient_bytes})
    fusion = min(HOROVOD_FUSION_BYTES, gradient_bytes) if work.engine == "horovod" else 0
    return Counter({"gradients": gradient_bytes, "reduction": gradient_bytes + fusion})


def _input_bytes(work: Work) -> int:
    """Samples are bytes until the forward pass. A GPU gets one micro batch ahead; a CPU has all of them already."""
    samples = 2 * work.micro_batch
    if work.device == "cpu":
        samples = (work.samples_per_update or work.micro_batch * work.micro_steps) * work.updates_in_memory
    return samples * work.image_size**2 * 3
