"""Argument lists that start the ranks through mpirun, srun or horovodrun. Pure: nothing is started here.

All of them speak MPI. Gloo is built only when asked for by name: its launcher opens a server that executes what it is sent
(CVE-2024-10190, CVE-2026-31234).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from distxcept.launch.hosts import Host, total_slots

Via = Literal["mpirun", "mpich", "srun", "horovodrun", "gloo"]

# A host that asks for a password, or does not answer, is an error and not a reason to wait.
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """How to start, besides what and where."""

    via: Via
    as_root: bool = False
    remote: bool = False
    """Some rank is on another host."""
    one_host: bool = False
    """All ranks are on this one."""
    interface: str | None = None
    """The interface that was asked for, or loopback where all ranks are here."""
    network: str | None = None
    """For Open MPI where no interface is given: the network to use, as 10.0.0.0/24."""
    names: tuple[str, ...] = ()
    """Variables that travel, by name."""
    cpus_per_task: int | None = None
    """srun: cores of each rank. It gives one core by default, whatever the allocation has, and one starves a GPU."""
    gpus: bool = False
    """srun: the allocation has GPUs, and every rank is to see all of its node."""
    pin_nodes: bool = False
    """srun: use these nodes of the allocation only."""
    launcher: str | None = None
    """Path of the program, where PATH does not find it."""
    extra: tuple[str, ...] = ()
    """Options of the user's for the launcher."""


def launch_command(wiring: Wiring, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
    build = {
        "mpirun": _open_mpi,
        "mpich": _mpich,
        "srun": _srun,
        "horovodrun": _horovodrun,
        "gloo": _horovodrun,
    }
    return [*build[wiring.via](wiring, hosts), *wiring.extra, *program]


def _open_mpi(wiring: Wiring, hosts: Sequence[Host]) -> list[str]:
    # Ranks are not bound: Open MPI's default is one core for each of two ranks, which starves TensorFlow. The
    # training divides the cores itself.
    arguments = [wiring.launcher or "mpirun", *(["--allow-run-as-root"] if wiring.as_root else [])]
    arguments += ["-np", str(total_slots(hosts)), "--host", ",".join(map(str, hosts))]
    arguments += ["--bind-to", "none", "--map-by", "slot"]
    # On one host through shared memory: the ranks then open no port at all. Else anything but MPI's old InfiniBand
    # layer, which is deprecated and not safe with forks; reductions of GPU ranks go through NCCL anyway.
    arguments += ["--mca", "btl", "self,vader" if wiring.one_host else "^openib"]
    arguments += ["--mca", "pml", "ob1"] if wiring.one_host else []
    network = wiring.interface or wiring.network
    if network:
        arguments += ["--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include", network]
    if wiring.remote:
        arguments += ["--mca", "plm_rsh_args", " ".join(SSH_OPTIONS)]
    return arguments + [word for name in wiring.names for word in ("-x", name)]


def _mpich(wiring: Wiring, hosts: Sequence[Host]) -> list[str]:
    arguments = [
        wiring.launcher or "mpirun",
        "-np",
        str(total_slots(hosts)),
        "-hosts",
        ",".join(map(str, hosts)),
    ]
    arguments += ["-bind-to", "none"]
    arguments += ["-iface", wiring.interface] if wiring.interface else []
    return arguments + (["-genvlist", ",".join(wiring.names)] if wiring.names else [])


def _srun(wiring: Wiring, hosts: Sequence[Host]) -> list[str]:
    arguments = [
        wiring.launcher or "srun",
        "--mpi=pmix",
        f"--ntasks={total_slots(hosts)}",
        "--kill-on-bad-exit=1",
    ]
    arguments += [f"--cpus-per-task={wiring.cpus_per_task}"] if wiring.cpus_per_task else []
    # Cards that are hidden from the other ranks by control groups cannot copy to each other directly (nccl#1066).
    arguments += ["--gpu-bind=none"] if wiring.gpus else []
    if wiring.pin_nodes:
        arguments += [f"--nodes={len(hosts)}", f"--nodelist={','.join(host.name for host in hosts)}"]
    return arguments


def _horovodrun(wiring: Wiring, hosts: Sequence[Host]) -> list[str]:
    arguments = [wiring.launcher or "horovodrun", "--gloo" if wiring.via == "gloo" else "--mpi"]
    arguments += ["-np", str(total_slots(hosts)), "-H", ",".join(map(str, hosts))]
    if wiring.interface:
        # Otherwise it starts a server on every host to find one.
        arguments += ["--network-interfaces", wiring.interface]
        if wiring.via == "horovodrun":
            arguments += [f"--mpi-args=--mca oob_tcp_if_include {wiring.interface}"]
    return arguments
