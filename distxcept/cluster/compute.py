"""Variables that decide how TensorFlow computes, chosen before it is imported: it reads them then."""

import os
from collections.abc import Mapping

from distxcept.config.schema import Config

ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
GPU_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
INSTALL_CUDA = "pip install 'tensorflow[and-cuda]>=2.21,<2.22'"
CUDA_PACKAGE = "nvidia-cudnn-cu12"
"""One of those that this command installs."""
NAMES = (
    ONEDNN,
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR",
    *THREADS,
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
    "TF_DETERMINISTIC_OPS",
    "NVIDIA_TF32_OVERRIDE",
    GPU_GROWTH,
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "HOROVOD_CYCLE_TIME",
    "OMPI_MCA_mpi_yield_when_idle",
)
"""All that env.json tells of, whoever has set them; none of them can hold a secret."""


def compute_environ(config: Config, *, on_gpu: bool) -> dict[str, str]:
    """Pure: what pays for this run. Where the user's environment says otherwise, that wins.

    oneDNN's kernels are the faster ones for Xception on a CPU, and TensorFlow leaves them off on many processors. They
    are switched off, since TensorFlow has them on by itself on others,
      with memory.limit            a process of theirs that gets no memory dies, where the plain kernels raise an error
      with an ordered reduction    its promise of equal bits has been tested with the plain kernels only
    A GPU has other kernels. Its memory is taken as it is needed, under memory.limit too, which could not be said in Python:
    TensorFlow would take the whole limit at once, and leave no room for the trials of memory plans.
    """
    if on_gpu:
        return {GPU_GROWTH: "true"}
    if config.memory.limit is not None:
        # For who sets oneDNN on: its own allocator keeps what is freed, and leaves no room for a smaller step.
        return {ONEDNN: "0", "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}
    return {ONEDNN: "0" if config.engine.reduction == "ordered" else "1"}


def cores_for_parts(
    config: Config, engine: str, *, on_cpu: bool, cores: int, environ: Mapping[str, str] = os.environ
) -> int:
    """Cores over which a process spreads the parts of a micro step; 1: operations have the cores, one by one.

    A core that computes a virtual batch of its own need not wait for others in every operation. Ranks and logical devices
    have that already. With memory.limit everything is as tight as can be, ordered sums have an order of their own, and
    who sets the threads has an arrangement in mind.
    """
    free = config.memory.limit is None and config.engine.reduction == "fast"
    arranged = config.engine.threads is not None or any(name in environ for name in THREADS)
    return cores if on_cpu and engine == "single" and free and not arranged else 1


def runs_on_gpu(config: Config, environ: Mapping[str, str], gpus: int) -> bool:
    """Pure: whether the run will be on GPUs, as far as can be said without TensorFlow, on a machine with so many."""
    devices = config.engine.devices
    if isinstance(devices, tuple):
        return any(name.upper().startswith("GPU") for name in devices)
    hidden = environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    return gpus > 0 and not hidden


def unused_gpus(config: Config, environ: Mapping[str, str], gpus: int, *, has_cuda: bool) -> str | None:
    """Pure: what to say of a run on the CPU, on a machine with so many GPUs. Nothing where the CPU was asked for.

    `has_cuda`: CUDA's libraries were installed by pip.
    """
    granted = environ.get("SLURM_GPUS_ON_NODE", "")
    from_slurm = int(granted) if granted.isdecimal() else 0
    if not runs_on_gpu(config, environ, max(gpus, from_slurm)):
        return None
    there = "SLURM has given this job" if from_slurm else "this machine has"
    number = from_slurm or gpus
    mend = "" if has_cuda else f"install CUDA's libraries: {INSTALL_CUDA}; else "
    return (
        f"{there} {number} GPU{'s' * (number > 1)}, but TensorFlow sees none: training on the CPU; "
        f"{mend}`distxcept doctor`, run in the same place, says why"
    )


def in_effect(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Those that are set, by us or by the user."""
    return {name: environ[name] for name in NAMES if name in environ}
