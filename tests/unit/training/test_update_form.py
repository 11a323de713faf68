"""How an update is run: what may leave while it still computes."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from distxcept.batching import plan_batches
from distxcept.data.batch import Batch
from distxcept.training.update import Update


class Seen(Exception):
    pass


def form_of(*, padded: bool, masks: list[list[float]]) -> tuple[bool, list[int]]:
    """Whether the reduction overlaps, and for each replica how many of its virtual batches use the fused kernel."""

    def step(batches, common, **form):
        assert all(batch.indices == () for batch in batches), "they are for the host"
        raise Seen(form["overlap"], [one.fused for one in form["forms"]])

    plan = plan_batches(samples=8, global_batch=8, virtual_batch=2, micro_batch=2, replicas=2)
    batches = [
        Batch(
            np.zeros((2, 2, 4, 4, 3)),
            np.zeros((2, 2)),
            np.reshape(mask, (2, 2)),
            0,
            np.zeros(0),
            np.zeros((2, 2)),
        )
        for mask in masks
    ]
    update = SimpleNamespace(precision=SimpleNamespace(variable=tf.float32), _replica_step=step)
    with pytest.raises(Seen) as seen:
        Update.start(update, batches, plan, key=1, rate=0.1, padded=padded, overlap=True)
    return seen.value.args


FULL, SHORT, BAD = [1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 1]


def test_an_update_with_padding_needs_more_memory_and_is_reduced_when_its_work_is_done():
    """Then a rank that has too little of it can still say so."""
    assert form_of(padded=False, masks=[FULL]) == (True, [2])
    assert form_of(padded=True, masks=[FULL]) == (False, [2]), "padding on another rank"
    assert form_of(padded=False, masks=[SHORT]) == (False, [1]), "an image that cannot be read"


def test_padding_leaves_all_other_virtual_batches_as_they_are():
    assert form_of(padded=True, masks=[FULL, FULL, SHORT]) == (False, [2, 2, 1])


def test_bad_images_anywhere_are_one_form_for_all_replicas():
    assert form_of(padded=False, masks=[SHORT, FULL]) == (False, [0, 0])
    assert form_of(padded=False, masks=[FULL, BAD]) == (False, [0, 0])
    assert form_of(padded=True, masks=[FULL, BAD, SHORT]) == (False, [0, 0, 0])
