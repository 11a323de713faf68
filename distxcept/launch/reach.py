"""Which hosts can still be used."""

import shutil
import subprocess
import time
from collections.abc import Sequence

from distxcept.launch.mpi import SSH_OPTIONS
from distxcept.launch.network import is_local

_DEAD_STATES = ("DOWN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "MAINT")


def lost_by_ssh(names: Sequence[str], timeout_seconds: float = 20.0) -> set[str]:
    """Hosts on which `ssh HOST true` fails: they could start no rank either."""
    remote = [name for name in names if not is_local(name)]
    if not remote or shutil.which("ssh") is None:
        return set()
    probes = {
        name: subprocess.Popen(
            ["ssh", *SSH_OPTIONS, "--", name, "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name in remote
    }
    deadline = time.monotonic() + timeout_seconds
    lost = set()
    for name, probe in probes.items():
        try:
            failed = probe.wait(max(0.0, deadline - time.monotonic())) != 0
        except subprocess.TimeoutExpired:
            probe.kill()
            probe.wait()
            failed = True
        if failed:
            lost.add(name)
    return lost


def lost_by_slurm(names: Sequence[str], timeout_seconds: float = 20.0) -> set[str]:
    """Nodes that the controller no longer counts on; none if it does not answer: it may be restarting."""
    command = ["scontrol", "--oneliner", "show", "node", ",".join(names)]
    try:
        shown = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_seconds
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return set()
    return dead_nodes(shown) & set(names)


def dead_nodes(shown: str) -> set[str]:
    """Out of `scontrol --oneliner show node`."""
    dead = set()
    for line in shown.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        states = fields.get("State", "").replace("*", "+NOT_RESPONDING").split("+")
        if "NodeName" in fields and any(state in _DEAD_STATES for state in states):
            dead.add(fields["NodeName"])
    return dead
