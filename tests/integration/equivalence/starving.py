"""Lets a rank really run out of memory in an update: its process may then hold hardly more than it does."""

import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

from distxcept.memory.limit import process_bytes
from distxcept.training.accumulate import Accumulator
from distxcept.training.update import Update

SPARE_BYTES = 4 * 2**20
"""Enough for the small things of other threads, not for the tensors of an update."""

# Without oneDNN TensorFlow raises an error; with it the process dies. Tensors are mapped one by one, so that no free
# memory is left over from the update before.
ENVIRON = {"TF_ENABLE_ONEDNN_OPTS": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}


@contextmanager
def starving(rank_of_update: Mapping[int, int], rank: int) -> Iterator[None]:
    """`rank_of_update` maps the number of an update, counted from one, to the rank that lacks memory at its first try."""
    real = Update.start
    seen: set[int] = set()

    def call(update, batches, plan, *, key, **arguments):
        again = key in seen
        seen.add(key)
        if again or rank_of_update.get(len(seen)) != rank:
            return real(update, batches, plan, key=key, **arguments)
        step = update._replica_step
        with mock.patch.object(update, "_replica_step", lambda *a, **form: within_little(step, *a, **form)):
            return real(update, batches, plan, key=key, **arguments)

    with mock.patch.object(Update, "start", call):
        yield


@contextmanager
def failing_late(rank_of_update: Mapping[int, int], rank: int) -> Iterator[None]:
    """As `starving`, but not for real, and at the end of the backward pass: all gradients but one are there by then."""
    real, real_block = Update.start, Accumulator.block
    seen: set[int] = set()
    fails = False

    def call(update, batches, plan, *, key, **arguments):
        nonlocal fails
        again = key in seen
        seen.add(key)
        fails = not again and rank_of_update.get(len(seen)) == rank
        return real(update, batches, plan, key=key, **arguments)

    def last(gradient):
        if fails:
            time.sleep(1.0)  # the others are free to leave meanwhile
            raise MemoryError("played")
        return gradient

    def block(accumulator, *arguments, **form):
        sums = real_block(accumulator, *arguments, **form)
        first, *others = sums.gradients
        passed = tf.ensure_shape(tf.py_function(last, [first], first.dtype), first.shape)
        return sums._replace(gradients=[passed, *others])

    with mock.patch.object(Update, "start", call), mock.patch.object(Accumulator, "block", block):
        yield


@contextmanager
def scarce(from_update: int, full_micro: int, spare_bytes: int) -> Iterator[None]:
    """From an update on (counted from one) there is no memory for `full_micro` samples at once; for fewer there is.

    So it stays until the plan is smaller, however often the process dies of it. Only what is executed is starved: where
    memory ends while TensorFlow builds a graph, it may wait for ever for a lock that it holds itself.
    """
    real = Update.start

    def call(update, batches, plan, **arguments):
        number = int(update.engine.copies(update.state.applied)[0]) + 1
        if number < from_update or plan.micro_batch < full_micro:
            return real(update, batches, plan, **arguments)
        step = update._replica_step

        def starved_step(*given, **form):
            executed = ConcreteFunction._call_flat

            def execute(function, *tensors, **captured):
                if not tf.executing_eagerly():  # a function within the one that is being traced
                    return executed(function, *tensors, **captured)
                return within_little(executed, function, *tensors, spare_bytes=spare_bytes, **captured)

            with mock.patch.object(ConcreteFunction, "_call_flat", execute):
                return step(*given, **form)

        with mock.patch.object(update, "_replica_step", starved_step):
            return real(update, batches, plan, **arguments)

    with mock.patch.object(Update, "start", call):
        yield


def wait_for_readers(most_seconds: float = 5.0) -> None:
    """Until the threads that read ahead are done: NumPy crashes where it gets no memory while others have Python's lock, and
    on a busy machine they would still be drawing when the memory ends."""
    deadline = time.monotonic() + most_seconds
    while time.monotonic() < deadline:
        before = time.process_time()
        time.sleep(0.1)
        if time.process_time() - before < 0.02:
            return


def within_little(step, *arguments, spare_bytes: int = SPARE_BYTES, **form):
    wait_for_readers()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (process_bytes("VmData") + spare_bytes, hard))
    try:
        return step(*arguments, **form)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, hard))
