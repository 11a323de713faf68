"""A request to stop may come twice: from the batch system to every process, and from the launcher as SIGUSR1."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, time
from distxcept.training.signals import StopSignals
with StopSignals() as signals:
    getattr(signals, "defer", lambda: None)()  # the training is under way
    for name in sys.argv[1:]:
        os.kill(os.getpid(), signal.Signals[name])
        time.sleep(1.0)
    print("requested" if signals.requested else "not requested")
"""


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        (["SIGTERM"], 0),
        (["SIGTERM", "SIGUSR1"], 0),
        (["SIGUSR1", "SIGUSR1"], 0),
        (["SIGUSR1", "SIGTERM"], 143),
        (["SIGINT", "SIGINT"], 130),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_sigusr1_is_never_the_second_signal_that_kills(signals, code):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *signals], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == ("requested\n" if code == 0 else "")
