"""Variables that decide how fast TensorFlow computes on a CPU, chosen before it is imported: it reads them then."""

import os
from collections.abc import Mapping

from distxcept.config.schema import Config

ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
NAMES = (
    ONEDNN,
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
)
"""All that env.json tells of, whoever has set them; none of them can hold a secret."""


def compute_environ(config: Config, *, on_gpu: bool) -> dict[str, str]:
    """Pure: what pays for this run. Where the user's environment says otherwise, that wins.

    oneDNN's kernels are the faster ones for Xception on a CPU, and TensorFlow leaves them off on many processors. They stay
    as TensorFlow has them
      with memory.limit            a process of theirs that gets no memory dies, where the plain kernels raise an error
      with an ordered reduction    its promise of equal bits has been tested with the plain kernels only
      on a GPU                     which has other kernels
    """
    if config.memory.limit is not None:
        # oneDNN's own allocator keeps what is freed: a step that did not fit would leave no room for a smaller one.
        return {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}
    if on_gpu or config.engine.reduction == "ordered":
        return {}
    return {ONEDNN: "1"}


def runs_on_gpu(config: Config, environ: Mapping[str, str], gpus: int) -> bool:
    """Pure: whether the run will be on GPUs, as far as can be said without TensorFlow, on a machine with so many."""
    devices = config.engine.devices
    if isinstance(devices, tuple):
        return any(name.upper().startswith("GPU") for name in devices)
    hidden = environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    return gpus > 0 and not hidden


def in_effect(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Those that are set, by us or by the user."""
    return {name: environ[name] for name in NAMES if name in environ}
