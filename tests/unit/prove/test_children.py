"""Child processes of `distxcept prove`: limited, explained when they fail, and ended together."""

import sys
import threading
import time

import psutil
import pytest

from distxcept.prove.children import Children, Stopped


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
    assert ended.seconds < 20


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
    code = "import time; print(time.monotonic()); time.sleep(1); print(time.monotonic())"
    found = []
    threads = [
        threading.Thread(
            target=lambda k=k: found.append(children.run(str(k), program(code), seconds=60).stdout)
        )
        for k in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spans = sorted(tuple(map(float, text.split())) for text in found)
    assert spans[2][0] >= min(spans[0][1], spans[1][1]), "the third has waited"
