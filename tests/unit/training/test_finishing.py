"""A rank that runs out of memory when it changes its weights: the other ranks have changed theirs."""

from types import SimpleNamespace

import pytest
import tensorflow as tf

from distxcept.errors import LostForMemoryError
from distxcept.training.update import Update

NO_MEMORY = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")


class Ending(Update):
    """Only the end of an update: each try raises the next of `errors`, or gives what it was handed."""

    def __init__(self, *errors: Exception, changed: bool = False):
        self.errors, self.tries = list(errors), 0
        self.state = SimpleNamespace(is_consistent=lambda: not changed)

    def _replica_finish(self, replicas, common):
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        return replicas[0]


def finish(update: Update) -> str:
    return update._finish_with_retry("the sums", ())


def test_one_that_lacks_memory_once_tries_again_with_the_same_sums():
    update = Ending(NO_MEMORY)
    assert (finish(update), update.tries) == ("the sums", 2)


def test_twice_is_the_end():
    with pytest.raises(LostForMemoryError, match="while the weights were changing"):
        finish(Ending(NO_MEMORY, NO_MEMORY))


def test_not_after_something_was_changed():
    update = Ending(NO_MEMORY, changed=True)
    with pytest.raises(LostForMemoryError, match="while the weights were changing"):
        finish(update)
    assert update.tries == 1


def test_other_errors_are_not_tried_again():
    update = Ending(ValueError("no gradient"))
    with pytest.raises(ValueError, match="no gradient"):
        finish(update)
    assert update.tries == 1
