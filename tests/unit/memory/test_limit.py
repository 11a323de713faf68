"""A limit is one for real: in a process of its own, since it cannot be taken back."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import numpy as np
from distxcept.memory.limit import limit_process, process_bytes
used = process_bytes("VmRSS")
limit_process(used + int(sys.argv[1]) * 2**20)
held = [np.ones(int(sys.argv[2]) * 2**20, np.uint8)]
print("held")
"""


def run(spare_mib: int, wanted_mib: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, str(spare_mib), str(wanted_mib)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("spare", "wanted", "fits"), [(200, 100, True), (200, 300, False)])
def test_what_lies_beyond_the_limit_cannot_be_had(spare, wanted, fits):
    done = run(spare, wanted)
    assert (done.returncode == 0) == fits
    assert ("held" in done.stdout) == fits
    assert ("MemoryError" in done.stderr) != fits


def test_a_limit_below_what_the_process_holds_is_refused():
    done = run(10, 1)
    assert "DoesNotFitError: memory.limit is" in done.stderr
    assert "set memory.limit to" in done.stderr
