"""Which launcher started this process: a pure function of its environment.

Launchers nest. A job script under `sbatch` calls `mpirun`, and its ranks inherit SLURM's variables; on other
nodes mpirun even uses `srun` to start its own daemons, whose step then has one task a node whatever the number
of ranks. So the innermost launcher wins: horovodrun (Gloo) > MPICH > Open MPI > srun > local. An outer one that
started several tasks would mean several jobs that each believe to be the only one; that is an error, unless the
outer step is plainly that of mpirun's daemons.
"""

from collections.abc import Mapping

from distxcept.cluster import slurm
from distxcept.cluster.placement import Placement
from distxcept.cluster.variables import RankVariables, contradiction

OPEN_MPI = RankVariables(
    rank="OMPI_COMM_WORLD_RANK",
    size="OMPI_COMM_WORLD_SIZE",
    local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
    local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
)
# MPICH's Hydra. `srun --mpi=pmi2` sets the first two as well, but not the last two.
HYDRA = RankVariables(
    rank="PMI_RANK", size="PMI_SIZE", local_rank="MPI_LOCALRANKID", local_size="MPI_LOCALNRANKS"
)
HOROVOD_GLOO = RankVariables(
    rank="HOROVOD_RANK",
    size="HOROVOD_SIZE",
    local_rank="HOROVOD_LOCAL_RANK",
    local_size="HOROVOD_LOCAL_SIZE",
)


def detect(environ: Mapping[str, str]) -> Placement:
    """The placement of the process with this environment; ConfigError where its variables contradict each other."""
    found = [
        (placement, names)
        for placement, names in (
            (_horovod_gloo(environ), HOROVOD_GLOO),
            (_hydra(environ), HYDRA),
            (_open_mpi(environ), OPEN_MPI),
        )
        if placement is not None
    ]
    step = slurm.step_placement(environ) if not found or _step_is_a_layer(environ, found[-1][0]) else None
    if step is not None:
        found.append((step, RankVariables(slurm.RANK, slurm.SIZE, slurm.LOCAL_RANK, slurm.TASKS_PER_NODE)))
    if not found:
        return Placement(launcher="local", notice=slurm.batch_notice(environ))
    innermost, inner_names = found[0]
    for outer, outer_names in found[1:]:
        if outer.is_distributed and (outer.rank, outer.size) != (innermost.rank, innermost.size):
            raise contradiction(
                environ,
                [inner_names.rank, inner_names.size, outer_names.rank, outer_names.size],
                f"{innermost.launcher} and {outer.launcher} disagree on who this process is "
                f"({outer.launcher} starting several times {innermost.launcher} makes several separate jobs)",
            )
    return innermost


def _horovod_gloo(environ: Mapping[str, str]) -> Placement | None:
    if not HOROVOD_GLOO.present(environ):
        return None
    rank, size, local_rank, local_size = HOROVOD_GLOO.read(environ)
    return Placement(
        launcher="horovodrun",
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        host=environ.get("HOROVOD_HOSTNAME"),
        wire_up="gloo",
    )


def _hydra(environ: Mapping[str, str]) -> Placement | None:
    under_srun = "SLURM_STEP_ID" in environ and HYDRA.local_size not in environ
    if under_srun or not HYDRA.present(environ):
        return None
    rank, size, local_rank, local_size = HYDRA.read(environ)
    return Placement(
        launcher="hydra",
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        host=environ.get("MPIR_CVAR_CH3_INTERFACE_HOSTNAME"),
        wire_up="pmi",
    )


def _open_mpi(environ: Mapping[str, str]) -> Placement | None:
    if not OPEN_MPI.present(environ):
        return None
    rank, size, local_rank, local_size = OPEN_MPI.read(environ)
    return Placement(
        launcher="mpirun",
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        host=environ.get("PMIX_HOSTNAME"),
        wire_up="pmix",
        bound="OMPI_MCA_orte_bound_at_launch" in environ,
    )


def _step_is_a_layer(environ: Mapping[str, str], inner: Placement) -> bool:
    """False where the SLURM step only carries the daemons of the launcher that was found inside it."""
    if not slurm.is_daemon_step(environ):
        return True
    if inner.launcher == "hydra":
        return False
    if inner.launcher == "mpirun":
        # A rank's parent is a daemon in that step, or (then the two are equal) mpirun itself, and then mpirun
        # was started by every task of the step. Open MPI 5 names its own daemon in the PMIx namespace.
        daemon = environ.get("OMPI_MCA_orte_local_daemon_uri")
        by_daemon = daemon is not None and daemon != environ.get("OMPI_MCA_orte_hnp_uri")
        return not (by_daemon or environ.get("PMIX_NAMESPACE", "").startswith("prterun"))
    return True
