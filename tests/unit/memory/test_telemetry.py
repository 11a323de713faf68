"""The thread: it follows the training, ends with it, and never harms it."""

import threading

import pytest

from distxcept.memory.notices import Judge, Notice
from distxcept.memory.telemetry import Telemetry
from tests.unit.memory.samples import card

PATIENCE = 60


class Recorder:
    """Keeps what it is given; the test waits for it instead of for the clock."""

    def __init__(self, fail_at=None, others=()):
        self.samples, self.fail_at, self.closed = [], fail_at, False
        self.arrived = threading.Condition()
        self._others = list(others)

    def open(self, updates_done):
        self.thread, self.updates_done = threading.current_thread(), updates_done

    def write(self, sample, notices):
        if len(self.samples) == self.fail_at:
            raise OSError(28, "No space left\non device")
        with self.arrived:
            self.samples.append(sample)
            self.arrived.notify_all()

    def of_other_ranks(self):
        found, self._others = self._others, []
        return found

    def close(self):
        self.closed = True

    def wait_for(self, condition):
        with self.arrived:
            assert self.arrived.wait_for(lambda: any(map(condition, self.samples)), PATIENCE)


def telemetry(output, **options):
    return Telemetry(every_seconds=0.01, output=output, **options)


def tell(running, update, waited=0.0):
    running.after_update(update, micro_batch=8, remat=False, waited_seconds=waited)


def test_follows_the_training_and_ends_with_it():
    output = Recorder()
    with telemetry(output, read_cards=lambda: [card()], device_bytes=lambda: (5,)) as running:
        output.wait_for(lambda sample: sample.moment.phase == "start")
        tell(running, 7)
        output.wait_for(lambda sample: sample.settled and sample.settled.update == 7)
        with running.evaluating():
            output.wait_for(lambda sample: sample.moment.phase == "evaluate")
        output.wait_for(lambda sample: sample is output.samples[-1] and sample.moment.phase == "train")
    assert not output.thread.is_alive()
    assert output.closed
    settled = next(sample.settled for sample in output.samples if sample.settled)
    assert settled.device_bytes == (5,)
    last = output.samples[-1]
    assert (last.moment.update, last.moment.micro_batch, last.cards) == (7, 8, (card(),))
    assert 0 < settled.host_bytes <= max(sample.rss_bytes for sample in output.samples)
    assert all(sample.cpu_share >= 0 and 0 <= sample.data_wait <= 1 for sample in output.samples)
    assert running.take_notices() == []


def test_a_run_that_goes_on():
    output = Recorder()
    running = telemetry(output)
    running.starts_at(5)
    with running:
        output.wait_for(lambda sample: (sample.moment.phase, sample.moment.update) == ("start", 5))
    assert output.updates_done == 5


def test_memory_is_settled_once_a_sample():
    """The training pays for a reading of its memory once a sample, not once an update."""
    readings = []

    def device_bytes():
        readings.append(1)
        return ()

    running = telemetry(Recorder(), device_bytes=device_bytes)
    running._take()
    for update in range(100):
        tell(running, update)
    assert len(readings) == 1
    assert running._take().settled.update == 0
    assert running._take().settled is None


def test_off_starts_nothing():
    output, before = Recorder(), threading.active_count()
    with Telemetry(every_seconds=None, output=output) as running:
        tell(running, 1)
        assert threading.active_count() == before
    assert output.samples == []
    assert running.take_notices() == []


def broken():
    raise RuntimeError("the driver is gone")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(output=Recorder(fail_at=2)), "OSError: [Errno 28] No space left on device"),
        (dict(output=Recorder(), read_cards=broken), "RuntimeError: the driver is gone"),
    ],
    ids=["a full disk", "a broken driver"],
)
def test_a_failure_is_one_notice_and_harms_nobody(options, message):
    with Telemetry(every_seconds=0.01, **options) as running:
        assert running._thread is not None
        running._thread.join(PATIENCE)
        tell(running, 1)
    (notice,) = running.take_notices()
    assert notice.kind == "telemetry_failed"
    assert notice.message == f"telemetry ends here, the training goes on: {message}"
    assert options["output"].closed


def test_no_room_for_a_thread(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with telemetry(Recorder()) as running:
        tell(running, 1)
    assert [notice.kind for notice in running.take_notices()] == ["telemetry_failed"]


def test_the_end_does_not_wait_for_a_driver_that_hangs(monkeypatch):
    monkeypatch.setattr("distxcept.memory.telemetry.PATIENCE_SECONDS", 0.01)
    hanging, answer = threading.Event(), threading.Event()

    def hang():
        hanging.set()
        answer.wait(PATIENCE)
        return []

    with telemetry(Recorder(), read_cards=hang) as running:
        assert hanging.wait(PATIENCE)
    assert running._thread is not None
    assert running._thread.is_alive()
    assert running._thread.daemon
    answer.set()
    running._thread.join(PATIENCE)


def test_notices_of_the_judge_and_of_other_ranks():
    theirs = Notice("thermal_throttling", "rank 1 GPU 0", "rank 1 on b: hot")
    judge = Judge(own_pids=(), larger=lambda *_: None, host_free_bytes=lambda: 0)
    mine = Notice("shared_card", "GPU 0", "shared")
    judge.look = lambda sample: [mine] if sample.moment.update == 3 else []
    output = Recorder(others=[theirs])
    with telemetry(output, judge=judge) as running:
        output.wait_for(lambda sample: True)
        tell(running, 3)
        output.wait_for(lambda sample: sample.moment.update == 3)
    found = running.take_notices()
    assert found[0] == theirs
    assert mine in found
    assert running.take_notices() == []
