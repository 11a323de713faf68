"""A real SLURM of a few nodes on one machine, for tests: munged, slurmctld and one slurmd a node, on loopback.

Everything it needs lies in one private folder that goes away with it: its own munge key and socket, its own
slurm.conf, its own ports. The machine's /etc/slurm and /etc/munge are neither read nor changed. Run it by hand
with `python tests/integration/slurm_cluster.py`: it prints the line that points `srun` at it and waits for Ctrl-C.
"""

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

REQUIRED_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo", "scancel")
INSTALL_COMMAND = "apt-get install slurm-wlm munge"

# Debian keeps daemons out of an ordinary user's PATH.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])

# `low` may be preempted by `high`: its job is requeued, as on most clusters that have a scavenger partition.
# cred_expire bounds how long SLURM keeps a requeued job waiting (its default is two minutes), and KillWait how
# long a job has between SIGTERM and SIGKILL.
SLURM_CONF = """\
ClusterName=distxcept-test
SlurmctldHost={hostname}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}/tmp.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/task_prolog.sh
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait={kill_wait_seconds}
UnkillableStepTimeout=60
"""
# Open MPI names a rank's shared memory after machine, job and the rank's number on its node. Two nodes that are one machine
# would take each other's (a rank then dies of SIGSEGV in its start), so each node has a folder for it.
TASK_PROLOG = """\
#!/bin/sh
echo "export OMPI_MCA_btl_vader_backing_directory={folder}/tmp.$SLURMD_NODENAME"
"""
PARTITIONS = """\
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE MaxTime=INFINITE State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""


def missing_programs() -> list[str]:
    return [name for name in REQUIRED_PROGRAMS if shutil.which(name, path=SEARCH_PATH) is None]


class SlurmCluster:
    """Use as a context manager; `run` and `popen` start SLURM's commands against this cluster."""

    def __init__(
        self,
        nodes: int = 2,
        cpus_per_node: int = 2,
        gpus_per_node: int = 0,
        kill_wait_seconds: int = 5,
        start_seconds: float = 60,
    ):
        self.node_names = [f"node{index + 1}" for index in range(nodes)]
        self.cpus_per_node = cpus_per_node
        self.gpus_per_node = gpus_per_node
        self.kill_wait_seconds = kill_wait_seconds
        self.start_seconds = start_seconds
        # Short on purpose: a unix socket's path may hold 107 characters, and SLURM and PMIx add names to it.
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.environ: dict[str, str] = {}
        self.daemons: list[subprocess.Popen[bytes]] = []

    # -- life ---------------------------------------------------------------------------------------------

    def __enter__(self) -> "SlurmCluster":
        try:
            self._write_files()
            self._start("munged", "--foreground", "--force", *self._munge_options())
            self.wait("munged to open its socket", (self.folder / "munge.socket").exists)
            self._start("slurmctld", "-D")
            for name in self.node_names:
                self._start("slurmd", "-D", "-N", name)
            self.wait(f"{len(self.node_names)} idle nodes in sinfo", self._all_idle)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the jobs, then the daemons, then whatever still runs in this cluster's name, and remove the folder."""
        if len(self.daemons) > 1 and all(daemon.poll() is None for daemon in self.daemons):
            with contextlib.suppress(Exception):  # a cluster in any state must still be taken down
                self.cancel_all(timeout_seconds=20)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons.clear()
        left = self._own_processes()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=5)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- use ----------------------------------------------------------------------------------------------

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_seconds: float = 60,
        extra_environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a SLURM command to its end. A timeout ends the command's whole process group."""
        process = self.popen(command, extra_environ=extra_environ, cwd=cwd)
        try:
            stdout, stderr = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return subprocess.CompletedProcess(list(command), process.returncode, stdout, stderr)

    def popen(
        self,
        command: Sequence[str],
        *,
        extra_environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            list(command),
            env={**self.environ, **(extra_environ or {})},
            cwd=cwd or self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def submit(self, script: Path, *options: str, extra_environ: Mapping[str, str] | None = None) -> int:
        """`sbatch`; returns the job's number."""
        done = self.run(["sbatch", "--parsable", *options, str(script)], extra_environ=extra_environ)
        if done.returncode:
            raise RuntimeError(f"sbatch refused {script}: {done.stderr.strip()}")
        return int(done.stdout.strip().split(";")[0])

    def job_state(self, job: int) -> str:
        """PENDING, RUNNING, COMPLETED …, as `scontrol show job` says."""
        shown = self.run(["scontrol", "--oneliner", "show", "job", str(job)]).stdout
        fields = dict(word.split("=", 1) for word in shown.split() if "=" in word)
        return fields.get("JobState", "UNKNOWN")

    def wait_for_job(self, job: int, *states: str, timeout_seconds: float = 60) -> str:
        self.wait(
            f"job {job} to be {' or '.join(states)}", lambda: self.job_state(job) in states, timeout_seconds
        )
        return self.job_state(job)

    def cancel_all(self, timeout_seconds: float = 30) -> None:
        """Cancel every job and wait until all nodes are idle again, so that one test leaves nothing to the next."""
        self.run(["scancel", "--user", getpass.getuser()], timeout_seconds=timeout_seconds)
        with contextlib.suppress(TimeoutError):
            self.wait("all nodes to be idle", self._all_idle, timeout_seconds)

    def wait(self, what: str, ready: Callable[[], bool], timeout_seconds: float | None = None) -> None:
        """Poll until ready; a daemon that died or a deadline that passed ends the waiting with the logs."""
        deadline = time.monotonic() + (self.start_seconds if timeout_seconds is None else timeout_seconds)
        while not ready():
            dead = [daemon for daemon in self.daemons if daemon.poll() is not None]
            if dead:
                raise RuntimeError(
                    f"{dead[0].args} ended with {dead[0].returncode} while waiting for {what}\n{self.logs()}"
                )
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited in vain for {what}\n{self.logs()}")
            time.sleep(0.1)

    def logs(self, lines_per_file: int = 20) -> str:
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-lines_per_file:])
            for path in sorted(self.folder.glob("*.log"))
        )

    # -- inside -------------------------------------------------------------------------------------------

    def _write_files(self) -> None:
        for name in ["state", *(f"{kind}.{node}" for node in self.node_names for kind in ("spool", "tmp"))]:
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        controller_port, *node_ports = _free_ports(1 + len(self.node_names))
        hostname = socket.gethostname().split(".")[0]
        conf = SLURM_CONF.format(
            folder=self.folder,
            hostname=hostname,
            controller_port=controller_port,
            user=getpass.getuser(),
            kill_wait_seconds=self.kill_wait_seconds,
        )
        for name, port in zip(self.node_names, node_ports, strict=True):
            conf += (
                f"NodeName={name} NodeHostname={hostname} NodeAddr=127.0.0.1 Port={port} "
                f"CPUs={self.cpus_per_node} {self._gpus()}State=UNKNOWN\n"
            )
        if self.gpus_per_node:
            conf += "GresTypes=gpu\n"
            cards = [self.folder / f"card{number}" for number in range(self.gpus_per_node)]
            for card in cards:
                card.touch()
            (self.folder / "gres.conf").write_text("".join(f"Name=gpu File={card}\n" for card in cards))
        conf_path = self.folder / "slurm.conf"
        conf_path.write_text(conf + PARTITIONS)
        prolog = self.folder / "task_prolog.sh"
        prolog.write_text(TASK_PROLOG.format(folder=self.folder))
        prolog.chmod(0o755)
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "OMPI_", "PMI"))
        }
        self.environ = {**inherited, "PATH": SEARCH_PATH, "SLURM_CONF": str(conf_path)}

    def _gpus(self) -> str:
        """Empty files instead of devices: SLURM hands them out all the same, and a job finds no card."""
        return f"Gres=gpu:{self.gpus_per_node} " if self.gpus_per_node else ""

    def _munge_options(self) -> list[str]:
        return [
            f"--key-file={self.folder}/munge.key",
            f"--socket={self.folder}/munge.socket",
            f"--log-file={self.folder}/munged.log",
            f"--pid-file={self.folder}/munged.pid",
            f"--seed-file={self.folder}/munged.seed",
        ]

    def _start(self, *command: str) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            self.daemons.append(
                subprocess.Popen(
                    command,
                    env=self.environ,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _all_idle(self) -> bool:
        try:
            shown = self.run(["sinfo", "--noheader", "--Node", "--format=%N %T"], timeout_seconds=10)
        except subprocess.TimeoutExpired:
            return False
        states = dict(line.split() for line in shown.stdout.splitlines())
        return states == dict.fromkeys(self.node_names, "idle")

    def _own_processes(self) -> list[psutil.Process]:
        """slurmstepd and the tasks detach from slurmd. A task carries this cluster's SLURM_CONF; slurmstepd writes
        its title over its environment, and is known by the slurmd log that it holds open."""
        own = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURM_CONF") == str(self.folder / "slurm.conf") or (
                    process.name() == "slurmstepd"
                    and any(opened.path.startswith(f"{self.folder}/") for opened in process.open_files())
                ):
                    own.append(process)
        return [process for process in own if process.pid != os.getpid()]


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now; all are held open until the last is known, so that they differ."""
    with contextlib.ExitStack() as held:
        ports = []
        for _ in range(count):
            listener = held.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            ports.append(listener.getsockname()[1])
        return ports


if __name__ == "__main__":
    with SlurmCluster() as cluster:
        print(f"export SLURM_CONF={cluster.environ['SLURM_CONF']}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
