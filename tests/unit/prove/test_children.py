"""Child processes of `distxcept prove`: limited, explained when they fail, and ended together."""

import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from distxcept.prove import children as module
from distxcept.prove.children import NOT_STARTED, TIME_IS_UP, Children, Ended, Stopped


@pytest.fixture
def children(tmp_path):
    made = Children(tmp_path)
    yield made
    made.stop()


def program(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_and_environment(children):
    ended = children.run("x", program("import os; print(os.environ['X'])"), seconds=30, environ={"X": "7"})
    assert (ended.code, ended.stdout, ended.why) == (0, "7\n", "")


def test_a_rank_of_a_job_starts_children_that_are_no_ranks(children, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    ended = children.run("x", program("import os; print('OMPI_COMM_WORLD_SIZE' in os.environ)"), seconds=30)
    assert ended.stdout == "False\n"


def test_why_it_failed(children):
    ended = children.run("x", program("import sys; print('a'); sys.exit('no card\\nat all')"), seconds=30)
    assert (ended.code, ended.why) == (1, "exit code 1: no card / at all")
    assert children.run("y", program("import os; os.abort()"), seconds=30).why.startswith("SIGABRT")


def test_too_slow(children):
    ended = children.run("x", program("import time; time.sleep(60)"), seconds=1)
    assert ended.timed_out and ended.why == f"no answer within {ended.seconds:.0f} s"
    assert ended.unfinished and not ended.too_late
    assert ended.seconds < 20


@pytest.fixture
def soon(tmp_path, monkeypatch):
    """Children of a proof that ends after so many seconds; even the last moment is enough to start one."""
    monkeypatch.setattr(module, "LEAST_SECONDS", 0.0)
    return lambda seconds: Children(tmp_path, deadline=time.monotonic() + seconds)


def test_the_deadline_ends_a_child(soon):
    ended = soon(1).run("x", program("import time; print(1, flush=True); time.sleep(60)"), seconds=50)
    assert ended.too_late and ended.unfinished and ended.why == TIME_IS_UP
    assert ended.stdout == "1\n", "what it told before counts"
    assert ended.seconds < 20


def test_the_limit_of_a_child_may_come_before_the_deadline(soon):
    ended = soon(60).run("x", program("import time; time.sleep(60)"), seconds=1)
    assert ended.timed_out and not ended.too_late and "no answer" in ended.why


def test_a_child_that_ends_in_time_is_not_late(soon):
    children = soon(60)
    ended = children.run("x", program("print(1)"), seconds=50)
    assert (ended.code, ended.why, ended.unfinished) == (0, "", False)
    ended = children.run("y", program("raise SystemExit('no card')"), seconds=50)
    assert ended.why == "exit code 1: no card" and not ended.unfinished, "the child's own fault"


@pytest.mark.parametrize(
    ("left", "leave_seconds", "starts"),
    [(4.5, 0, False), (100, 0, True), (100, 95.5, False), (100, 40, True)],
)
def test_without_time_no_child_is_started(tmp_path, left, leave_seconds, starts):
    mark = tmp_path / "mark"
    children = Children(tmp_path, deadline=time.monotonic() + left)
    ended = children.run("x", program(f"open({str(mark)!r}, 'w')"), seconds=30, leave_seconds=leave_seconds)
    assert mark.exists() == starts
    assert ended.too_late != starts and ended.log.exists()
    assert (ended.code, ended.why) == ((0, "") if starts else (NOT_STARTED, TIME_IS_UP))


def test_optional_work_ends_before_the_deadline(soon):
    children = soon(100)
    ended = children.run("x", program("import time; time.sleep(60)"), seconds=50, leave_seconds=99)
    assert ended.why == TIME_IS_UP and ended.seconds < 20
    assert children.run("y", program("print(1)"), seconds=50).stdout == "1\n", "the rest still fits"


def test_after_stop_nothing_is_late(tmp_path):
    """An interrupted proof tells no reasons that are wrong."""
    children = Children(tmp_path, deadline=time.monotonic() - 1)
    children.stop()
    with pytest.raises(Stopped):
        children.run("x", program("pass"), seconds=30)


def test_who_has_ended_by_itself_is_finished():
    """It ended in the moment in which it was to be killed."""
    assert not Ended(0, "", Path(), 1.0, timed_out=True, too_late=True).unfinished
    assert Ended(-9, "", Path(), 1.0, timed_out=True, too_late=True).unfinished


def test_stop_ends_a_child_and_its_own_children(children, tmp_path):
    mark = tmp_path / "pids"
    code = f"""
import os, subprocess, sys, time
inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(mark)!r} + ".writing", "w").write(f"{{os.getpid()}} {{inner.pid}}")
os.rename({str(mark)!r} + ".writing", {str(mark)!r})
time.sleep(60)
"""
    raised = []

    def run() -> None:
        try:
            children.run("x", program(code), seconds=60)
        except Stopped as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not mark.exists():
        time.sleep(0.05)
    children.stop()
    thread.join(timeout=20)
    assert raised and not thread.is_alive()
    assert all(gone(int(pid)) for pid in mark.read_text().split())
    with pytest.raises(Stopped):
        children.run("y", program("pass"), seconds=30)


def gone(pid: int) -> bool:
    try:
        psutil.Process(pid).wait(timeout=10)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def test_two_at_once(children):
    spans = sorted(spans_of(children, *[{}] * 3))
    assert spans[2][0] >= min(spans[0][1], spans[1][1]), "the third has waited"


def spans_of(children: Children, *environs: Mapping[str, str]) -> list[tuple[float, float]]:
    """When the children with these environments began and ended; they are asked for at once, in this order."""
    code = "import time; print(time.monotonic()); time.sleep(1); print(time.monotonic())"
    said = [""] * len(environs)

    def run(number: int) -> None:
        said[number] = children.run(str(number), program(code), seconds=60, environ=environs[number]).stdout

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(environs))]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    return [(float(begin), float(end)) for begin, end in map(str.split, said)]


HIDDEN_CARDS = [{"CUDA_VISIBLE_DEVICES": "-1"}, {"CUDA_VISIBLE_DEVICES": ""}]


@pytest.mark.parametrize("hidden", HIDDEN_CARDS)
def test_one_at_once_on_gpus_and_beside_it_one_without(tmp_path, hidden):
    """Who waits for the cards keeps no place: the one without them, which came last, need not wait."""
    first, second, without = spans_of(Children(tmp_path, on_gpu=True), {}, {"X": "1"}, hidden)
    (_, freed), (taken, _) = sorted((first, second))
    assert taken >= freed, "two would share the memory of the cards"
    assert without[0] < freed, "it runs beside the first"


def test_those_without_cards_run_two_at_once_too(tmp_path):
    spans = sorted(spans_of(Children(tmp_path, on_gpu=True), *HIDDEN_CARDS, HIDDEN_CARDS[0]))
    assert spans[1][0] < spans[0][1], "the second runs beside the first"
    assert spans[2][0] >= min(spans[0][1], spans[1][1]), "the third has waited"
