"""MPI, Horovod, mpi4py and SLURM, from what they print."""

from typing import Any

import pytest

from distxcept.doctor.child import ProbeReport
from distxcept.doctor.launchers import CommandOutput, check_launchers, check_placement, mpi_family

OPEN_MPI = "mpirun (Open MPI) 4.1.4\n\nReport bugs to …"
HYDRA = "HYDRA build details:\n    Version:                                 4.0.2\n"
GOOD = {
    "horovod": {"mpi": True, "gloo": True, "nccl": 0, "cuda": False, "folder": "/x"},
    "mpi4py": {"library": "Open MPI v4.1.4, package: Debian OpenMPI"},
}
COMMANDS = CommandOutput(
    mpirun_version=OPEN_MPI,
    srun_installed=True,
    srun_version="slurm-wlm 22.05.8\n",
    srun_mpi_list="MPI plugin types are...\n\tpmix\n\tpmi2\n",
    horovod_libraries="\tlibmpi.so.40 => /lib/libmpi.so.40 (0x00)\n",
)


def texts(
    stages: dict[str, Any], commands: CommandOutput = COMMANDS, gpus: int = 0, **died: str
) -> dict[str, str]:
    return {
        finding.text: finding.status
        for finding in check_launchers(ProbeReport(stages, **died), commands, gpus)
    }


def test_everything_fits() -> None:
    assert texts(GOOD) == {
        "mpirun of Open MPI 4.1.4": "ok",
        "Horovod was built with MPI, Gloo": "ok",
        "mpi4py uses Open MPI 4.1.4": "ok",
        "slurm-wlm 22.05.8 with PMIx": "ok",
    }


def test_nothing_is_installed_and_that_is_fine() -> None:
    missing = {name: {"missing": name, "error": "…"} for name in ("horovod", "mpi4py")}
    found = texts(missing, CommandOutput())
    assert set(found.values()) == {"ok"} and len(found) == 4


@pytest.mark.parametrize(
    ("stages", "part"),
    [
        (
            {"horovod": {"error": "NotFoundError: undefined symbol _ZN"}},
            "Horovod cannot be imported: NotFound",
        ),
        ({"horovod": {**GOOD["horovod"], "mpi": False}}, "Horovod was built without MPI"),
        ({"mpi4py": {"error": "RuntimeError: cannot load MPI library"}}, "mpi4py cannot load MPI"),
        ({"mpi4py": {"library": "MPICH Version: 4.0.2"}}, "different MPIs are mixed"),
    ],
)
def test_problems(stages: dict[str, Any], part: str) -> None:
    found = texts({**GOOD, **stages})
    assert [text for text, status in found.items() if status == "problem" and part in text], found


def test_mpirun_of_another_mpi_than_horovods() -> None:
    commands = CommandOutput(mpirun_version=HYDRA, horovod_libraries=COMMANDS.horovod_libraries)
    found = texts(GOOD, commands)
    assert found["mpirun of MPICH 4.0.2"] == "ok"
    assert "problem" in found.values()


def test_a_crash_of_horovod_is_named() -> None:
    found = texts({}, died_in="horovod", how="SIGSEGV")
    assert found["Horovod ended while being loaded: SIGSEGV"] == "problem"


def test_several_gpus_want_nccl() -> None:
    assert "warning" not in texts(GOOD, gpus=1).values()
    (text,) = [text for text, status in texts(GOOD, gpus=2).items() if status == "warning"]
    assert "without NCCL" in text
    with_nccl = {**GOOD, "horovod": {**GOOD["horovod"], "nccl": 23203}}
    assert "Horovod was built with MPI, Gloo, NCCL 23203" in texts(with_nccl, gpus=2)


@pytest.mark.parametrize(
    ("commands", "part"),
    [
        (CommandOutput(srun_installed=True), "no cluster answers"),
        (
            CommandOutput(srun_installed=True, srun_version="slurm 23", srun_mpi_list="none pmi2"),
            "has no PMIx",
        ),
    ],
)
def test_slurm_warnings(commands: CommandOutput, part: str) -> None:
    assert [text for text, status in texts({}, commands).items() if status == "warning" and part in text]


@pytest.mark.parametrize(
    ("text", "family"),
    [
        (OPEN_MPI, "Open MPI"),
        ("mpirun.real (OpenRTE) 4.0.3", "Open MPI"),
        (HYDRA, "MPICH"),
        ("libmpi.so.12 => …", "MPICH"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.11", "MPICH"),
        ("", None),
    ],
)
def test_mpi_family(text: str, family: str | None) -> None:
    assert mpi_family(text) == family


RANKS = {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_RANK": "1"}


@pytest.mark.parametrize(
    ("environ", "status", "part"),
    [
        ({}, "ok", "started alone"),
        ({**RANKS, "OMPI_COMM_WORLD_SIZE": "2"}, "ok", "rank 1 of 2, started by mpirun"),
        ({**RANKS, "OMPI_COMM_WORLD_SIZE": "1"}, "problem", "ranks go from 0 to 0"),
        ({"SLURM_JOB_ID": "5", "SLURM_NTASKS": "4"}, "warning", "not started by srun"),
    ],
)
def test_placement(environ: dict[str, str], status: str, part: str) -> None:
    (finding,) = check_placement(environ)
    assert finding.status == status and part in finding.text
