"""A rank that gets half of its CPU is named; in a clean run nobody is. Needs a quiet machine, hence `make soak` only."""

import json
import signal
import threading
import time

import psutil
import pytest
from launched_training import LaunchedTraining
from launchers import skip_without

pytestmark = [pytest.mark.mpi, pytest.mark.soak]

SLICE_SECONDS = 0.02


def straggler_events(job: LaunchedTraining) -> list[dict]:
    lines = (job.run_folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == "straggler"]


class Throttle:
    """Stops the process half of the time."""

    def __init__(self, process: psutil.Process):
        self._process, self._end = process, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                for number in (signal.SIGSTOP, signal.SIGCONT):
                    self._process.send_signal(number)
                    time.sleep(SLICE_SECONDS)
        except psutil.NoSuchProcess:
            pass


# Three virtual batches a rank would be 12 samples each; a larger picture makes the update longer than its overhead.
OPTIONS = ["--np=3", "run.updates=60", "batch.global=24", "model.image_size=128", "data.train.samples=96"]


def test_clean_run_names_nobody(tmp_path):
    skip_without("mpirun", "horovod", "mpi4py")
    job = LaunchedTraining(tmp_path, "clean", *OPTIONS)
    code, output = job.finish()
    assert code == 0, output
    assert straggler_events(job) == []
    assert "preflight: 3 ranks on 1 host, 100 MB reduced in" in output
    print(next(line for line in output.splitlines() if "preflight" in line))


def test_throttled_rank_is_named(tmp_path):
    skip_without("mpirun", "horovod", "mpi4py")
    job = LaunchedTraining(tmp_path, "throttled", *OPTIONS)
    job.wait_until("update 5", lambda: len(job.updates()) >= 5)
    with Throttle(job.ranks()[2]):
        began = len(job.updates())
        job.wait_until("a name", lambda: bool(straggler_events(job)))
    code, output = job.finish()
    assert code == 0, output
    event = straggler_events(job)[0]
    print(f"throttled from update {began}, named at {event['update']}: {event['message']}")
    assert event["message"].startswith("rank 2 on ")
    assert event["update"] - began <= 20
