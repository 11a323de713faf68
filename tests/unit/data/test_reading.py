"""Retry, threads, memory budget and advice: the pure parts around the pipeline."""

import re
import threading

import pytest

from distxcept.data.host import free_memory, updates_ahead
from distxcept.data.patience import lacked_memory, outlast_want_of_memory
from distxcept.data.pool import Workers, threads_wanted
from distxcept.data.waiting import InputStats, advice, data_wait
from distxcept.errors import DoesNotFitError

GIB = 2**30


@pytest.mark.parametrize(
    ("cores", "share", "threads"),
    [
        (2, 0.0, 2),
        (2, -0.1, 2),
        (2, 0.5, 4),
        (2, 0.75, 8),
        (2, 0.99, 16),
        (2, 1.0, 16),
        (16, 0.1, 18),
        (1, 0.2, 1),
    ],
)
def test_threads_make_up_for_waiting(cores, share, threads):
    assert threads_wanted(cores, share) == threads


def test_workers_run_in_order_and_never_more_at_once_than_told():
    begun, release, lock = [], threading.Event(), threading.Lock()
    started = threading.Semaphore(0)

    def task(number):
        with lock:
            begun.append(number)
        started.release()
        release.wait(10)

    workers = Workers(2, most=4)
    for number in range(6):
        workers.submit(lambda number=number: task(number))
    started.acquire(), started.acquire()
    assert sorted(begun) == [0, 1]
    workers.use(3)
    started.acquire()
    assert sorted(begun) == [0, 1, 2]
    release.set()
    for _ in range(3):
        assert started.acquire(timeout=10)
    workers.close()
    assert sorted(begun) == list(range(6))


def test_closing_drops_what_has_not_begun():
    release, running, ran = threading.Event(), threading.Event(), []
    workers = Workers(1, most=1)
    workers.submit(lambda: (running.set(), release.wait(10)))
    workers.submit(lambda: ran.append(1))
    assert running.wait(10)
    closing = threading.Thread(target=workers.close)
    closing.start()
    while workers._waiting:
        pass
    release.set()
    closing.join(10)
    workers.close()
    assert ran == []


def test_budget_of_memory():
    assert updates_ahead("10MiB", 2**20, 1) == 9
    assert updates_ahead("2MiB", 2**20, 1) == 1
    with pytest.raises(DoesNotFitError, match=r"takes 1\.0 MiB and two must fit .* at least 2\.0 MiB"):
        updates_ahead("1.9MiB", 2**20, 1)
    assert updates_ahead("auto", 2**60, 1) == 1
    assert updates_ahead("auto", 2**20, 1) > updates_ahead("auto", 2**20, 8) >= 1


def test_a_containers_limit_counts(tmp_path):
    def container(limit, used, file=0):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{used}\n")
        (tmp_path / "memory.stat").write_text(f"anon 5\nfile {file}\nshmem 0\n")
        return free_memory(tmp_path)

    assert container(1000, 400) == 600
    assert container(1000, 900, file=300) == 400
    assert container(1000, 2000) == 0
    assert container("max", 400) > GIB / 8
    assert free_memory(tmp_path / "none") > GIB / 8


def stats(**changes):
    base = {
        "samples": 1000,
        "consumer_wait_seconds": 40.0,
        "busy_seconds": 200.0,
        "storage_wait_seconds": 10.0,
        "stored_pixels": 1000 * 500 * 375,
        "threads": 2,
        "image_size": 299,
    }
    return InputStats(**(base | changes))


@pytest.mark.parametrize(
    ("changes", "free", "sentence"),
    [
        ({"consumer_wait_seconds": 9.0}, 64 * GIB, None),
        ({"samples": 0}, 64 * GIB, None),
        ({"storage_wait_seconds": 150.0}, 64 * GIB, "distxcept pack"),
        ({"storage_wait_seconds": 150.0, "cached": True}, 64 * GIB, "a local one, or data.cache=memory"),
        ({"stored_pixels": 1000 * 4000 * 3000}, 64 * GIB, "12.0 million pixels .* --longest-side 598"),
        ({}, 64 * GIB, "data.cache=memory would hold all images in 5.2 GiB"),
        ({}, 4 * GIB, "more cores"),
        ({"cached": True}, 64 * GIB, "more cores"),
    ],
)
def test_advice_names_the_cure_that_the_figures_support(changes, free, sentence):
    said = advice(stats(**changes), 100.0, samples=10_000, free_bytes=free)
    if sentence is None:
        assert said is None
    else:
        assert said is not None
        assert said.startswith("the training waited 40% of the time for data (200.0 ms an image on 2 threads")
        assert re.search(sentence, said)


def test_data_wait_is_a_share():
    assert data_wait(stats(), 100.0) == 0.4
    assert data_wait(stats(), 10.0) == 1.0
    assert data_wait(stats(), 0.0) == 0.0


def test_want_of_memory_passes_by_itself():
    answers, slept = [MemoryError(), MemoryError(), 7], []

    def work():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert outlast_want_of_memory(work, (0.1, 0.5), slept.append) == 7
    assert slept == [0.1, 0.5]
    answers[:] = [MemoryError()] * 3
    with pytest.raises(MemoryError):
        outlast_want_of_memory(work, (0.1, 0.5), slept.append)


def test_want_of_memory_says_nothing_about_a_sample():
    exhausted = type("ResourceExhaustedError", (Exception,), {})
    assert [lacked_memory(e) for e in (MemoryError(), exhausted(), OSError(), ValueError())] == [1, 1, 0, 0]
