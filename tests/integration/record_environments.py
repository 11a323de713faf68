"""Record what real launchers put into the environment, for the table tests of cluster detection.

    python tests/integration/record_environments.py [NAME…]

writes tests/unit/cluster/environments/NAME.json: the command, and for each task the variables that detection may
look at. Host names become node1, node2, …; folders, ports and process numbers are left out. Needs the launchers
it records (Open MPI, MPICH, Horovod, SLURM); run it again when one of them gets a new version.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from slurm_cluster import SlurmCluster

TARGET = Path(__file__).parents[1] / "unit" / "cluster" / "environments"

KEEP = re.compile(
    r"OMPI_COMM_WORLD_\w+|OMPI_UNIVERSE_SIZE|OMPI_MCA_orte_(num_nodes|hnp_uri|local_daemon_uri|launch)"
    r"|PMIX_(NAMESPACE|RANK|HOSTNAME)|PMI_\w+|MPI_LOCAL\w+|MPIR_CVAR_CH3_INTERFACE_HOSTNAME|HOROVOD_\w+"
    r"|SLURMD_NODENAME|SLURM_(JOB_ID|JOB_NODELIST|JOB_NUM_NODES|LOCALID|MPI_TYPE|NNODES|NODEID|NODELIST|NPROCS|NTASKS"
    r"|NTASKS_PER_NODE|PROCID|TASKS_PER_NODE|STEP_(ID|NODELIST|NUM_NODES|NUM_TASKS|TASKS_PER_NODE))"
)
DROP = re.compile(r"PMI_FD|PMI_PORT|HOROVOD_SECRET_KEY|HOROVOD_GLOO_RENDEZVOUS_\w+")

# Each task writes its own file, so that no launcher's tagging of output gets in between.
DUMP = "import json, os, sys; json.dump(dict(os.environ), open(f'{sys.argv[1]}/{os.getpid()}.json', 'w'))"

OPEN_MPI = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
# On a real cluster mpirun runs on a node of the allocation and starts that node's ranks itself. Here the nodes
# are names for one host, which mpirun does not recognise as its own: this makes it do the same.
ON_THIS_HOST = ["--mca", "ras", "^slurm", "--mca", "plm", "isolated"]
MPICH = ["mpirun.mpich"]
HOROVODRUN = [str(Path(sys.executable).with_name("horovodrun"))]

WITHOUT_SLURM = {
    "openmpi": [*OPEN_MPI, "-np", "2"],
    "mpich": [*MPICH, "-np", "2"],
    "horovodrun_mpi": [*HOROVODRUN, "--mpi", "-np", "2"],
    "horovodrun_gloo": [*HOROVODRUN, "--gloo", "-np", "2"],
}
WITH_SLURM = {
    "srun_pmix": ["srun", "--mpi=pmix", "-N2", "-n3"],
    "srun_pmi2": ["srun", "--mpi=pmi2", "-N2", "-n2"],
    "srun_without_mpi": ["srun", "--mpi=none", "-N2", "-n2"],
    "srun_one_task": ["srun", "--mpi=pmix", "-n1"],
    "salloc_shell": ["salloc", "-N2", "-n2"],
    "salloc_openmpi": ["salloc", "-N2", "-n2", *OPEN_MPI, "-np", "4"],
    "salloc_mpich": ["salloc", "-N2", "-n2", *MPICH, "-np", "4"],
    "srun_each_task_openmpi": ["srun", "-N1", "-n2", *OPEN_MPI, *ON_THIS_HOST, "-np", "3"],
}
AS_BATCH_SCRIPT = {
    "sbatch_script": [],
    "sbatch_srun_pmix": ["srun", "--mpi=pmix"],
    "sbatch_openmpi": [*OPEN_MPI, "-np", "2"],
    "sbatch_one_node_openmpi": [*OPEN_MPI, *ON_THIS_HOST, "-np", "2"],
}


def clean(environ: dict[str, str]) -> dict[str, str]:
    host = socket.gethostname()
    kept = {
        name: value for name, value in environ.items() if KEEP.fullmatch(name) and not DROP.fullmatch(name)
    }
    for name, value in kept.items():
        value = re.sub(r"\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\]", "192.0.2.1", value)
        kept[name] = "node1" if value == host else value
    return dict(sorted(kept.items()))


def write(name: str, command: list[str], folder: str) -> None:
    environments = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    if not environments:
        raise SystemExit(f"{name}: no task wrote its environment; command: {command}")
    tasks = sorted((clean(environ) for environ in environments), key=lambda task: sorted(task.items()))
    shown = " ".join(os.path.basename(word) for word in command)
    TARGET.mkdir(exist_ok=True)
    (TARGET / f"{name}.json").write_text(json.dumps({"command": shown, "tasks": tasks}, indent=1) + "\n")
    print(f"{name}: {len(tasks)} tasks")


def main(wanted: list[str]) -> None:
    def selected(table: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
        return [(name, command) for name, command in table.items() if not wanted or name in wanted]

    plain_environ = {name: value for name, value in os.environ.items() if not KEEP.fullmatch(name)}
    for name, command in selected(WITHOUT_SLURM):
        with tempfile.TemporaryDirectory() as folder:
            full = [*command, sys.executable, "-c", DUMP, folder]
            subprocess.run(full, check=True, timeout=60, env=plain_environ)
            write(name, command, folder)
    slurm_entries = selected(WITH_SLURM), selected(AS_BATCH_SCRIPT)
    if not any(slurm_entries):
        return
    with SlurmCluster(nodes=2) as cluster:
        for name, command in slurm_entries[0]:
            with tempfile.TemporaryDirectory() as folder:
                done = cluster.run([*command, sys.executable, "-c", DUMP, folder])
                print(done.stderr, end="", file=sys.stderr)
                write(name, command, folder)
        for name, command in slurm_entries[1]:
            with tempfile.TemporaryDirectory() as folder:
                script = Path(folder) / "job.sh"
                dump = Path(folder) / "dump.py"
                dump.write_text(DUMP)
                words = [*command, sys.executable, str(dump), folder]
                script.write_text("#!/bin/sh\n" + " ".join(words) + "\n")
                cluster.wait_for_job(cluster.submit(script, "-N2", "-n2"), "COMPLETED", "FAILED")
                write(name, ["sbatch", "-N2", "-n2", "job.sh:", *command], folder)


if __name__ == "__main__":
    main(sys.argv[1:])
