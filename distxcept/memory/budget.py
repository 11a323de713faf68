"""How much of a device tensors may take: what there is, less what others, the reserve and TensorFlow itself hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from distxcept.config.schema import MemorySection
from distxcept.config.size import parse_size, show_size
from distxcept.memory.estimate import Device
from distxcept.memory.nvml import GpuState

CPU_OWN_BYTES = 740 * 2**20
"""Interpreter, TensorFlow and the traced graph of the update: measured by benchmarks/memory.py."""
GPU_OWN_BYTES = 600 * 2**20
"""CUDA context, cuDNN and cuBLAS, outside of the allocator. Published for PyTorch on an A100; not measured here."""
CPU_MARGIN = 0.05
"""Of the tensors of an update: the estimate is no measurement."""
GPU_MARGIN = 0.25
"""Of the tensors of an update: what the allocator holds between them, and what libraries take through it.

By published runs of Xception with PyTorch's allocator (docs/memory.md). For TensorFlow's on a GPU it is not verified.
"""
READING_STEP_BYTES = 128 * 2**20
"""What is free on a card varies by some MiB from start to start. That must not change the plan, or measure it again."""
ASSUMED_CARD_BYTES = 8 * 2**30
"""Of a card of which neither NVML nor CUDA tells the memory: where trials begin."""
HOST_PART = 0.5
"""Of the host's free memory that a run takes without having been told how much."""
BESIDE_BYTES = 64 * 2**20
"""Under `memory.limit` a run on a CPU holds more than its update: what the threads need that read, save and watch.

Measured for Xception at 128 px, micro batch 16: the update alone fits into 1,840 MiB and not into 1,830, a run that saves
after every update into 1,900 and not into 1,890.
"""


@dataclass(frozen=True)
class Budget:
    device: Device
    name: str
    """What is planned for, in words."""
    memory_bytes: int
    """What one replica could have at most."""
    own_bytes: int
    """TensorFlow's own part of it."""
    reserve_bytes: int
    limit_bytes: int | None = None
    assumed: bool = False
    """Nobody told how much memory the device has."""

    @property
    def allocator_bytes(self) -> int | None:
        """What TensorFlow may take of a GPU, in the run and in its trials alike; None: what it needs and finds."""
        return None if self.assumed else self.tensor_bytes

    @property
    def tensor_bytes(self) -> int:
        """What is left for the update, with its margin."""
        left = self.memory_bytes - self.own_bytes - self.reserve_bytes
        if self.limit_bytes is None:
            return max(0, left)
        # On a GPU the limit is that of TensorFlow's allocator; on the host it is that of the whole process.
        limit = self.limit_bytes - (self.own_bytes + self.reserve_bytes if self.device == "cpu" else 0)
        return max(0, min(left, limit))

    @property
    def margin(self) -> float:
        """Room beside the tensors of an update, as a part of them."""
        return GPU_MARGIN if self.device == "gpu" else CPU_MARGIN

    @property
    def usable_bytes(self) -> int:
        """What an estimate may come to: the tensors alone, without the margin."""
        return int(self.tensor_bytes / (1 + self.margin))


def gpu_budget(name: str, memory_bytes: int, memory: MemorySection) -> Budget:
    return Budget("gpu", name, memory_bytes, GPU_OWN_BYTES, parse_size(memory.reserve), _limit(memory))


def cards_budget(gpus: Sequence[GpuState], memory: MemorySection) -> Budget:
    """All replicas run the same plan, so that the card with the least free memory decides."""
    usable = [gpu for gpu in gpus if gpu.memory_free_bytes is not None]
    if not usable:
        return _unknown_card_budget(memory)
    gpu = min(usable, key=lambda gpu: gpu.memory_free_bytes or 0)
    free, total = gpu.memory_free_bytes or 0, gpu.memory_total_bytes or 0
    which = f"{gpu}" if len(gpus) == 1 else f"{gpu} of {len(gpus)}, the fullest,"
    text = f"{which} {gpu.name or 'of unknown name'}: {show_size(free)} of {show_size(total)} free"
    return gpu_budget(text, free // READING_STEP_BYTES * READING_STEP_BYTES, memory)


def _unknown_card_budget(memory: MemorySection) -> Budget:
    limit = _limit(memory)
    if limit is None:
        text = f"a GPU of unknown memory, assumed {show_size(ASSUMED_CARD_BYTES)}"
        return replace(gpu_budget(text, ASSUMED_CARD_BYTES, memory), assumed=True)
    text = f"a GPU of unknown memory, memory.limit {show_size(limit)}"
    return gpu_budget(text, limit + GPU_OWN_BYTES + parse_size(memory.reserve), memory)


def beside_update(budget: Budget) -> Budget:
    """Less what a run holds beside its update, where a limit counts that too.

    The copy of the state that is being saved is not among it: it is gone before the next update needs most.
    """
    if budget.device == "gpu" or budget.limit_bytes is None:
        return budget
    return replace(budget, reserve_bytes=budget.reserve_bytes + BESIDE_BYTES)


def host_budget(free_bytes: int, replicas: int, processes: int, memory: MemorySection) -> Budget:
    """The host as a device: its free memory, or a part of it, is shared by the replicas that run there."""
    part = HOST_PART if memory.limit is None else 1.0
    each = round(free_bytes * part) // replicas
    own = CPU_OWN_BYTES * processes // replicas
    taken = f", {part:.0%} of it taken" if part < 1 else ""
    shared = f", shared by {replicas} replicas" if replicas > 1 else ""
    text = f"this host: {show_size(free_bytes)} free{taken}{shared}"
    return Budget("cpu", text, each, own, 0, _limit(memory))


def _limit(memory: MemorySection) -> int | None:
    return None if memory.limit is None else parse_size(memory.limit)
