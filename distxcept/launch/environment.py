"""The environment that TensorFlow, Horovod and NCCL read when they start, completed before they are imported."""

import os

from distxcept.cluster.compute import compute_environ, runs_on_gpu
from distxcept.cluster.network import network_environ
from distxcept.config.schema import Config
from distxcept.memory.nvml import count_gpus


def prepare_environment(config: Config, *, verbose: bool = False) -> None:
    """Variables of this process, as they pay for this run. What the user has set stays."""
    on_gpu = runs_on_gpu(config, os.environ, count_gpus())
    chosen = {
        "TF_CPP_MIN_LOG_LEVEL": "0" if verbose else "2",
        **compute_environ(config, on_gpu=on_gpu),
        **network_environ(config.engine, on_gpu=on_gpu),
    }
    os.environ.update(chosen | dict(os.environ))
