"""The end of an attempt → what the supervisor does."""

import signal

import pytest

from distxcept.cluster.status import RankStatus
from distxcept.launch.verdict import Chances, Ending, decide
from distxcept.memory.measuring import describe
from distxcept.memory.probe import Measured
from distxcept.training.trial import MEMORY_RAN_OUT

FULL = Chances(restarts_left=2, may_restart=True, smaller_plan=True)
NO_SMALLER = Chances(restarts_left=2, may_restart=True)
USED_UP = Chances(restarts_left=0, may_restart=True, smaller_plan=True)
UNSUPERVISED = Chances(smaller_plan=True)
AGAIN = Chances(restarts_left=1, may_restart=True, smaller_plan=True, unexplained_before=True)
AGAIN_NO_SMALLER = Chances(restarts_left=1, may_restart=True, unexplained_before=True)


def status(rank, state="running", code=None, kind=None, time=1.0):
    return RankStatus(rank=rank, host="a", pid=7, state=state, time=time, exit_code=code, kind=kind, ranks=2)


LOST = status(0, "failed", 6, "PeerLostError")
DATA = status(1, "failed", 3, "DataError", time=2.0)
RUNNING = (status(0), status(1))
KILLED = -signal.SIGKILL

MPICH_KILLED = "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"

CASES = [
    # what ended              chances       → action, exit code
    (dict(code=0), FULL, "done", 0),
    # errors that a restart would repeat
    (dict(code=2), FULL, "over", 2),
    (dict(code=3), FULL, "over", 3),
    (dict(code=4), FULL, "over", 4),
    (dict(code=5), FULL, "over", 5),
    (dict(code=1), FULL, "over", 1),
    (dict(code=75), FULL, "over", 75),
    # the cause is in the status file of one rank, not in the code of the launcher, nor in what the survivors say
    (dict(code=137, statuses=(LOST, DATA)), FULL, "over", 3),
    (dict(code=6, statuses=(LOST, DATA)), FULL, "over", 3),
    (dict(code=137, statuses=(status(0, "stopped"), status(1, "stopped"))), FULL, "over", 75),
    # lost ranks
    (dict(code=KILLED), FULL, "restart", 137),
    (dict(code=137, statuses=RUNNING), FULL, "restart", 6),
    (dict(code=139, statuses=RUNNING), FULL, "restart", 6),
    (dict(code=6, statuses=(LOST,)), FULL, "restart", 6),
    (dict(code=6), FULL, "restart", 6),
    (dict(code=1, log_tails={0: "x.HorovodInternalError: y"}), FULL, "restart", 6),
    (dict(code=1, statuses=(status(0, "failed", 1, "HorovodInternalError"),)), FULL, "restart", 6),
    (dict(code=205, log_tails={0: "ORTE has lost communication with a remote daemon."}), FULL, "restart", 6),
    # MPICH returns the bare number of the signal
    (dict(code=9, statuses=RUNNING, log_tails={0: MPICH_KILLED}), FULL, "restart", 6),
    (dict(code=9, statuses=RUNNING), FULL, "over", 9),
    (dict(code=3, log_tails={0: MPICH_KILLED}), FULL, "over", 3),
    (dict(code=KILLED), USED_UP, "over", 137),
    (dict(code=137, statuses=RUNNING), USED_UP, "over", 6),
    (dict(code=KILLED), UNSUPERVISED, "over", 137),
    # ended by somebody's wish
    (dict(code=-signal.SIGTERM), FULL, "over", 143),
    (dict(code=143), FULL, "over", 143),
    (dict(code=130), FULL, "over", 130),
    # too little memory
    (dict(code=KILLED, oom_kills=1), FULL, "shrink", 4),
    (dict(code=KILLED, oom_kills=1), USED_UP, "shrink", 4),
    (dict(code=KILLED, oom_kills=1), NO_SMALLER, "over", 4),
    (dict(code=KILLED, oom_kills=1), UNSUPERVISED, "over", 4),
    (dict(code=6, oom_kills=1, statuses=(LOST,)), FULL, "shrink", 4),
    (dict(code=-signal.SIGABRT, log_tails={1: "what():  std::bad_alloc\n"}), FULL, "shrink", 4),
    (dict(code=139, log_tails={0: "RuntimeError: could not create a primitive"}), FULL, "shrink", 4),
    (dict(code=1, log_tails={0: "ResourceExhaustedError: OOM when allocating tensor"}), FULL, "shrink", 4),
    (dict(code=139, log_tails={0: "E CUDA_ERROR_OUT_OF_MEMORY: out of memory"}), FULL, "shrink", 4),
    # the training has said so itself, and how to go on
    (dict(code=6, statuses=(LOST,), smaller_plan_left=True), FULL, "shrink", 4),
    (dict(code=6, statuses=(LOST,), smaller_plan_left=True), USED_UP, "shrink", 4),
    # the training's own notice that it has gone on is no sign of the end
    (
        dict(code=137, log_tails={0: "update 3 ran\nout of memory with micro batch 8; it runs"}),
        FULL,
        "restart",
        137,
    ),
    # another group's kill beside an ordinary failure is not ours
    (dict(code=1, oom_kills=1), FULL, "over", 1),
    # a death without a reason is an accident once, twice without progress perhaps memory
    (dict(code=-signal.SIGSEGV), FULL, "restart", 139),
    (dict(code=-signal.SIGSEGV), AGAIN, "shrink", 139),
    (dict(code=KILLED), AGAIN, "shrink", 137),
    (dict(code=KILLED), AGAIN_NO_SMALLER, "restart", 137),
    (dict(code=6, statuses=(LOST,)), AGAIN, "restart", 6),
    # asked to stop
    (dict(code=75, stop_signal=15), FULL, "over", 75),
    (dict(code=0, stop_signal=15), FULL, "over", 0),
    (dict(code=0, stop_signal=15, statuses=(status(0, "done"),)), FULL, "over", 0),
    # srun is ended by SLURM while its tasks still save, and returns 0
    (dict(code=0, stop_signal=15, statuses=(status(0, "stopped"), status(1, "stopped"))), FULL, "over", 75),
    (dict(code=137, stop_signal=15, statuses=(status(0, "stopped"), status(1, "done"))), FULL, "over", 75),
    (dict(code=0, stop_signal=15, statuses=(status(0, "stopped"), status(1))), FULL, "over", 143),
    (dict(code=KILLED, stop_signal=15), FULL, "over", 143),
    (dict(code=KILLED, stop_signal=2, oom_kills=1), FULL, "over", 130),
    (dict(code=137, stop_signal=2), FULL, "over", 130),
    (dict(code=-signal.SIGUSR1, stop_signal=15), FULL, "over", 75),
    (dict(code=138, stop_signal=15), FULL, "over", 75),
    (dict(code=6, stop_signal=15), FULL, "over", 6),
]


@pytest.mark.parametrize(("ending", "chances", "action", "code"), CASES)
def test_verdict(ending, chances, action, code):
    verdict = decide(Ending(**ending), chances)
    assert (verdict.action, verdict.code) == (action, code), verdict.reason


@pytest.mark.parametrize("reason", [MEMORY_RAN_OUT, "the trial ended with -6"])
def test_a_trial_that_does_not_fit_says_nothing_of_the_end_of_the_run(reason):
    """Trials are part of every first start; a rank that is lost later was not lost for memory."""
    said = describe(Measured(64, False, False, reason=reason))
    assert "does not fit" in said
    assert decide(Ending(code=137, statuses=RUNNING, log_tails={0: said}), FULL).action == "restart"


def test_reason_of_a_permanent_error_is_the_message_of_the_rank_that_failed_first():
    first = RankStatus(
        rank=1,
        host="b",
        pid=1,
        state="failed",
        time=5.0,
        exit_code=3,
        kind="DataError",
        message="bad picture",
    )
    assert "bad picture" in decide(Ending(code=137, statuses=(LOST, first)), FULL).reason


@pytest.mark.parametrize("code", [KILLED, 139])
def test_only_deaths_without_evidence_are_unexplained(code):
    assert decide(Ending(code=code), FULL).unexplained
    assert not decide(Ending(code=code, log_tails={0: "std::bad_alloc"}), FULL).unexplained
    assert not decide(Ending(code=6, statuses=(LOST,)), FULL).unexplained
