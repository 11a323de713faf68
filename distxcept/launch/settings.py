"""What the environment of the ranks gets, with reasons, and which names travel to other hosts.

Values stand in the environment of the launcher only: a command line can be read by every user of a machine, so variables are
passed by name (`mpirun -x NAME`).
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from distxcept.errors import ConfigError

# What a rank on another host needs to find the same programs and to compute alike. Everything else, secrets
# included, travels only when it is asked for by --env NAME.
_NAMES = (
    "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "CONDA_PREFIX", "LANG", "LC_ALL", "TZ", "NO_COLOR",
    "XDG_CACHE_HOME", "NVIDIA_TF32_OVERRIDE",
)  # fmt: skip
_PREFIXES = (
    "HOROVOD_", "NCCL_", "TF_", "CUDA_", "XLA_", "OMP_", "MKL_", "KMP_", "UCX_", "PYTHON", "MALLOC_", "KERAS_", "DISTXCEPT_"
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


@dataclass(frozen=True)
class Setting:
    name: str
    value: str
    reason: str


def settings(timeline: str | None, interface: str | None) -> list[Setting]:
    found = []
    if timeline is not None:
        reason = "trace of every reduction, for chrome://tracing"
        found.append(Setting("HOROVOD_TIMELINE", os.path.abspath(timeline), reason))
    if interface is not None:
        reason = "NCCL's sockets use the interface that was asked for"
        found.append(Setting("NCCL_SOCKET_IFNAME", interface, reason))
    return found


def rank_environ(environ: Mapping[str, str], wanted: Iterable[Setting]) -> dict[str, str]:
    """The user's environment with our settings; what the user has set wins."""
    return {**{setting.name: setting.value for setting in wanted}, **environ}


def passed_names(environ: Mapping[str, str], extra: Iterable[str] = ()) -> list[str]:
    """Names of the variables that ranks on other hosts get."""
    extra = list(extra)
    for name in extra:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"--env: {name[:60]!r} is no name of a variable; give the name alone, not its value"
            )
        if name not in environ:
            raise ConfigError(f"--env: {name} is not set here, so there is nothing to pass on")
    ours = {name for name in environ if name in _NAMES or name.startswith(_PREFIXES)}
    return sorted(name for name in {*ours, *extra} if _NAME.fullmatch(name))
