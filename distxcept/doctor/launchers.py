"""MPI, Horovod, mpi4py and SLURM: what is there, and does it fit together."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from distxcept.cluster import detect
from distxcept.doctor.child import ProbeReport
from distxcept.doctor.finding import Finding
from distxcept.errors import ConfigError

AREA = "launchers"
BUILD_HOROVOD = "launch/build_horovod.sh builds it for the installed TensorFlow"


@dataclass(frozen=True)
class CommandOutput:
    """What a program printed; None where it is not installed or did not answer."""

    mpirun_version: str | None = None
    srun_installed: bool = False
    srun_version: str | None = None
    srun_mpi_list: str | None = None
    horovod_libraries: str | None = None
    """`ldd` of Horovod's own library."""


def read_commands(report: ProbeReport) -> CommandOutput:
    folder = (report.stage("horovod") or {}).get("folder")
    libraries = sorted(Path(folder).glob("mpi_lib*.so")) if folder else []
    return CommandOutput(
        mpirun_version=_output(["mpirun", "--version"]),
        srun_installed=shutil.which("srun") is not None,
        srun_version=_output(["srun", "--version"]),
        srun_mpi_list=_output(["srun", "--mpi=list"]),
        horovod_libraries=_output(["ldd", str(libraries[0])]) if libraries else None,
    )


def _output(command: list[str], timeout_seconds: float = 5) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_seconds
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def check_launchers(report: ProbeReport, commands: CommandOutput, gpus: int) -> list[Finding]:
    return [
        *_mpirun(commands),
        *_horovod(report, gpus),
        *_mpi4py(report),
        *_same_mpi(report, commands),
        *_slurm(commands),
    ]


def check_placement(environ: Mapping[str, str]) -> list[Finding]:
    try:
        placement = detect(environ)
    except ConfigError as error:
        text, _, remedy = str(error).rpartition("; ")
        return [Finding(AREA, "problem", text, remedy)]
    data = {"launcher": placement.launcher, "rank": placement.rank, "size": placement.size}
    if placement.notice is not None:
        text, _, remedy = placement.notice.partition("; ")
        return [Finding(AREA, "warning", text, remedy, data)]
    if not placement.is_distributed:
        return [Finding(AREA, "ok", "this process was started alone", data=data)]
    text = f"this is rank {placement.rank} of {placement.size}, started by {placement.launcher}"
    if placement.wire_up is None:
        return [Finding(AREA, "problem", f"{text} without MPI", "srun --mpi=pmix", data)]
    if placement.wire_up == "gloo":
        remedy = "horovodrun --mpi: the Gloo launcher opens an unprotected server (see advisories)"
        return [Finding(AREA, "warning", f"{text} through Gloo", remedy, data)]
    return [Finding(AREA, "ok", text, data=data)]


def _mpirun(commands: CommandOutput) -> list[Finding]:
    if commands.mpirun_version is None:
        remedy = "apt-get install openmpi-bin libopenmpi-dev"
        return [Finding(AREA, "ok", "no mpirun here (needed for several processes only)", remedy)]
    return [Finding(AREA, "ok", f"mpirun of {_describe_mpi(commands.mpirun_version)}")]


def _describe_mpi(text: str) -> str:
    """`Open MPI 4.1.4` out of what the programs and libraries print."""
    name = mpi_family(text) or "an unknown MPI"
    version = re.search(r"\d+\.\d+(\.\d+)?", text)
    return f"{name} {version[0]}" if version else name


def mpi_family(text: str) -> str | None:
    if "Open MPI" in text or "OpenRTE" in text or "libmpi.so.40" in text:
        return "Open MPI"
    if (
        "MPICH" in text
        or "HYDRA" in text
        or "libmpi.so.12" in text
        or "libmpich" in text
        or "Intel(R) MPI" in text
    ):
        return "MPICH"
    return None


def _horovod(report: ProbeReport, gpus: int) -> list[Finding]:
    state = report.stage("horovod")
    if state is None:
        if report.died_in != "horovod":
            return []
        text = f"Horovod ended while being loaded: {report.how}"
        return [Finding(AREA, "problem", text, f"build it again: {BUILD_HOROVOD}")]
    if "missing" in state:
        text = "Horovod is not installed (needed for several processes only)"
        return [Finding(AREA, "ok", text, BUILD_HOROVOD)]
    if "error" in state:
        text = f"Horovod cannot be imported: {state['error']}"
        return [Finding(AREA, "problem", text, f"it was built for another TensorFlow: {BUILD_HOROVOD}")]
    flags = [name for name, there in (("MPI", state["mpi"]), ("Gloo", state["gloo"])) if there]
    flags += [f"NCCL {state['nccl']}"] if state["nccl"] else []
    findings = [
        Finding(AREA, "ok", f"Horovod was built with {', '.join(flags) or 'nothing'}", data=dict(state))
    ]
    if not state["mpi"]:
        text = "Horovod was built without MPI: only its Gloo launcher works, which is not safe on a shared network"
        findings.append(Finding(AREA, "problem", text, f"build it again: {BUILD_HOROVOD}"))
    if gpus > 1 and not state["nccl"]:
        text = "Horovod was built without NCCL: gradients travel between the GPUs through the host, slowly"
        findings.append(Finding(AREA, "warning", text, "launch/build_horovod.sh --gpu"))
    return findings


def _mpi4py(report: ProbeReport) -> list[Finding]:
    state = report.stage("mpi4py")
    if state is None:
        if report.died_in != "mpi4py":
            return []
        return [
            Finding(AREA, "problem", f"mpi4py ended while being loaded: {report.how}", "pip install mpi4py")
        ]
    if "missing" in state:
        text = "mpi4py is not installed (needed for several processes only)"
        return [Finding(AREA, "ok", text, "pip install 'distxcept[horovod]'")]
    if "error" in state:
        remedy = "apt-get install openmpi-bin libopenmpi-dev"
        return [Finding(AREA, "problem", f"mpi4py cannot load MPI: {state['error']}", remedy)]
    return [Finding(AREA, "ok", f"mpi4py uses {_describe_mpi(state['library'])}", data=dict(state))]


def _same_mpi(report: ProbeReport, commands: CommandOutput) -> list[Finding]:
    """mpirun, Horovod and mpi4py of different MPIs make every task a job of its own."""
    families = {
        "mpirun": mpi_family(commands.mpirun_version or ""),
        "Horovod": mpi_family(commands.horovod_libraries or ""),
        "mpi4py": mpi_family(str((report.stage("mpi4py") or {}).get("library", ""))),
    }
    known = {name: family for name, family in families.items() if family is not None}
    if len(set(known.values())) < 2:
        return []
    listed = ", ".join(f"{name}: {family}" for name, family in known.items())
    text = f"different MPIs are mixed ({listed}): every task would be rank 0 of 1"
    remedy = "use the mpirun of Horovod's MPI; for mpi4py set MPI4PY_MPIABI to openmpi or mpich"
    return [Finding(AREA, "problem", text, remedy, known)]


def _slurm(commands: CommandOutput) -> list[Finding]:
    if not commands.srun_installed:
        return [Finding(AREA, "ok", "no SLURM here")]
    version = (commands.srun_version or "SLURM").strip()
    if commands.srun_mpi_list is None:
        text = f"{version}: srun is installed, but no cluster answers"
        return [
            Finding(AREA, "warning", text, "on a cluster check slurm.conf and `sinfo`; elsewhere ignore this")
        ]
    if "pmix" not in commands.srun_mpi_list:
        text = f"{version} has no PMIx: `srun --mpi=pmix` will not work"
        return [
            Finding(AREA, "warning", text, "use mpirun inside the allocation, or ask for SLURM with PMIx")
        ]
    return [Finding(AREA, "ok", f"{version} with PMIx")]
