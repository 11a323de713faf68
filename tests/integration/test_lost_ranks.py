"""One of three Horovod ranks comes to grief in a training: everybody ends in time, and the right one is named.

`test_lost_peers.py` does the same in every `make test`, without TensorFlow and MPI.
"""

import socket
import time
from pathlib import Path

import pytest
from launchers import skip_without
from small_runs import ranks_of, start, train

from distxcept.cluster.status import read_statuses

HOST = socket.gethostname()
LIMIT_SECONDS = 30.0
RUNS = 10
QUICK_TO_TRACE = ("model.freeze=backbone", "data.train.samples=36")
SAYS = {
    "kill": "is lost: its process is gone",
    "segfault": "is lost: its process is gone",
    "abort": "is lost: its process is gone",
    "stop": "is lost: no sign of life for 5 s, its process is stopped",
    "raise": "ValueError: the planted error; the traceback is in",
    "sysexit": "SystemExit: 3; the traceback is in",
}


@pytest.mark.soak
@pytest.mark.mpi
@pytest.mark.parametrize(("number", "kind"), [(number, kind) for number in range(RUNS) for kind in SAYS])
def test_one_of_three_ranks(kind: str, number: int, tmp_path: Path):
    skip_without("horovod", "mpirun")
    victim = number % 3
    folder = tmp_path / "run"
    process = start(train(folder, *QUICK_TO_TRACE, ranks=3, fault=(kind, victim, 2 + number)))
    _, stderr = process.communicate(timeout=400)
    ended = time.time()
    seconds = ended - float((folder / "fault").read_text())
    lines = [line for line in stderr.splitlines() if line.startswith("distxcept")]
    print(f"{kind} of rank {victim}: exit {process.returncode} after {seconds:.1f} s; {lines}")
    assert process.returncode != 0
    assert seconds < LIMIT_SECONDS
    assert ranks_of(folder) == []
    (line,) = lines
    assert f"rank {victim} on {HOST}" in line
    assert SAYS[kind] in line
    others = [status for rank, status in read_statuses(folder).items() if rank != victim]
    assert [status.exit_code for status in others] == [6, 6]
    assert all(f"rank {victim} on {HOST}" in status.message for status in others)
