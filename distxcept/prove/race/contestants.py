"""Who races: names, commands and environments. No TensorFlow."""

import os
import shutil
import sys
from importlib.util import find_spec

from distxcept.cluster.compute import NAMES, ONEDNN
from distxcept.launch.hosts import Host
from distxcept.launch.mpi import Wiring, launch_command
from distxcept.launch.network import loopback
from distxcept.prove.race.turns import Contestant

STOCK: dict[str, str | None] = {
    **dict.fromkeys((*NAMES, "OMP_NUM_THREADS", "HOROVOD_TIMELINE")),
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
"""The environment as TensorFlow finds it where nobody has set anything."""
WITH_ONEDNN: dict[str, str | None] = {**STOCK, ONEDNN: "1"}
WITHOUT_ONEDNN: dict[str, str | None] = {**STOCK, ONEDNN: "0"}
"""TensorFlow's own choice on processors without AVX512-VNNI; on others it is WITH_ONEDNN."""

STEADY_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""For who measures memory: by default glibc moves these, and the same step peaks differently from start to start."""
NO_POOL = {**STEADY_MALLOC, "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}
"""For what operations hold at once: else TensorFlow's pool for oneDNN keeps what they have freed, and it fragments."""


def module(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name, *arguments)


def in_ranks(ranks: int, program: tuple[str, ...]) -> tuple[str, ...]:
    """Through mpirun on this host; its stdin is rank 0's."""
    wiring = Wiring(
        via="mpirun",
        as_root=os.geteuid() == 0,
        one_host=True,
        interface=loopback(),
        extra=("--oversubscribe", "--stdin", "0"),
    )
    return tuple(launch_command(wiring, [Host("localhost", ranks)], program))


def ours(*overrides: str, name: str = "distxcept") -> Contestant:
    command = module("distxcept.prove.race.ours", *overrides)
    return Contestant(name, command, STOCK, "as distxcept train runs it")


def ours_stock() -> Contestant:
    about = "TensorFlow's own choice of kernels"
    return Contestant(
        "distxcept, stock environment", module("distxcept.prove.race.ours", "--stock"), STOCK, about
    )


def ours_in_ranks(ranks: int, share: str) -> Contestant:
    shared = "the batch is divided" if share == "split" else "each rank has the batch"
    command = in_ranks(ranks, module("distxcept.prove.race.ours", "--share", share))
    title = f"distxcept, {ranks} ranks{', batch divided' * (share == 'split')}"
    return Contestant(title, command, STOCK, f"Horovod over MPI, cores divided; {shared}")


def ours_bare(ranks: int) -> Contestant:
    command = in_ranks(ranks, module("distxcept.prove.race.ours", "--bare"))
    return Contestant(
        f"distxcept, {ranks} times", command, STOCK, "cores divided, nothing exchanged: the limit of ranks"
    )


def ours_side_by_side(batches: int, share: str = "each") -> Contestant:
    command = module("distxcept.prove.race.ours", "--side-by-side", str(batches), "--share", share)
    shared = "the batch is divided into" if share == "split" else "an update has"
    title = f"distxcept, {batches} side by side{', batch divided' * (share == 'split')}"
    return Contestant(title, command, STOCK, f"one process; {shared} {batches} virtual batches, a core each")


def ours_mirrored(devices: int, share: str, *, threads: int) -> Contestant:
    options = ["--devices", str(devices), "--share", share, f"engine.threads={threads}"]
    about = f"logical CPUs of one process, {threads} thread{'s' * (threads > 1)} each"
    return Contestant(
        f"distxcept, mirrored {devices}", module("distxcept.prove.race.ours", *options), STOCK, about
    )


def keras_fit(jit: str, *more: str, onednn: bool | None = None, accumulate: bool = False) -> Contestant:
    """`onednn` None: as TensorFlow chooses. `more`: options of peers.py."""
    options = ["--jit", jit, *(["--accumulate"] if accumulate else []), *more]
    name = f"keras fit, jit_compile {'auto' if jit == 'auto' else jit == 'on'}"
    return _peer(name, module("distxcept.prove.race.peers", "fit", *options), onednn)


def loop(*more: str, onednn: bool | None = None) -> Contestant:
    """`more`: options of peers.py."""
    command = module("distxcept.prove.race.peers", "loop", *more)
    return _peer("hand-written tf.function loop", command, onednn)


def _peer(name: str, command: tuple[str, ...], onednn: bool | None) -> Contestant:
    words, environ, about = {
        None: ("", STOCK, "stock environment"),
        True: (" with oneDNN", WITH_ONEDNN, "the environment of distxcept train"),
        False: (" without oneDNN", WITHOUT_ONEDNN, "the stock one of processors without AVX512-VNNI"),
    }[onednn]
    return Contestant(f"{name}{words}", command, environ, about)


def why_no_ranks() -> str | None:
    """Why nothing can be run in ranks here; None where it can."""
    if find_spec("horovod") is None:
        return "Horovod is not installed (launch/build_horovod.sh)"
    if shutil.which("mpirun") is None:
        return "mpirun is not installed"
    return None
