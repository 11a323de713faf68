"""Errors that pass by themselves are waited out, others are not, and each has its words."""

import errno

import pytest

from distxcept.data.retry import lacked_memory, read_with_retries, reason_of, retry_without_memory
from distxcept.data.sources import BadSample, Sample


class Flaky:
    def __init__(self, *errors):
        self.errors, self.slept = list(errors), []

    def read(self):
        if self.errors:
            raise self.errors.pop(0)
        return Sample(encoded=b"here")

    def run(self):
        return read_with_retries(self.read, (0.1, 0.5, 2.0), self.slept.append)


def test_errors_that_pass_are_waited_out():
    flaky = Flaky(OSError(errno.EIO, "x"), TimeoutError(errno.ETIMEDOUT, "x"), OSError(errno.ESTALE, "x"))
    assert flaky.run().encoded == b"here"
    assert flaky.slept == [0.1, 0.5, 2.0]


def test_errors_that_stay_are_not():
    flaky = Flaky(FileNotFoundError(errno.ENOENT, "x"))
    with pytest.raises(FileNotFoundError):
        flaky.run()
    assert flaky.slept == []
    for_ever = Flaky(*[OSError(errno.EIO, "Input/output error")] * 9)
    with pytest.raises(OSError, match="Input/output") as caught:
        for_ever.run()
    assert for_ever.slept == [0.1, 0.5, 2.0]
    assert reason_of(caught.value) == "cannot be read: Input/output error"


def test_want_of_memory_passes_by_itself():
    answers, slept = [MemoryError(), MemoryError(), 7], []

    def work():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert retry_without_memory(work, (0.1, 0.5), slept.append) == 7
    assert slept == [0.1, 0.5]
    answers[:] = [MemoryError()] * 3
    with pytest.raises(MemoryError):
        retry_without_memory(work, (0.1, 0.5), slept.append)
    answers[:] = [BadSample("empty file"), 7]
    with pytest.raises(BadSample):
        retry_without_memory(work, (0.1, 0.5), slept.append)
    assert slept == [0.1, 0.5] * 2


def test_want_of_memory_says_nothing_about_a_sample():
    exhausted = type("ResourceExhaustedError", (Exception,), {})
    assert [lacked_memory(e) for e in (MemoryError(), exhausted(), OSError(), ValueError())] == [1, 1, 0, 0]


def test_reasons_are_one_line():
    assert reason_of(BadSample("empty\nfile")) == "empty file"
    assert reason_of(ValueError("a\nb")) == "ValueError: a b"
