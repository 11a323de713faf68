"""How an update is run: what may leave while it still computes."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from distxcept.batching import plan_batches
from distxcept.training.update import Update


class Seen(Exception):
    pass


def overlaps(*, padded: bool, mask: list[float]) -> bool:
    def step(batches, common, **form):
        raise Seen(form["overlap"], form["forms"][0].fused)

    plan = plan_batches(samples=8, global_batch=8, virtual_batch=2, micro_batch=2, replicas=2)
    batch = SimpleNamespace(images=np.zeros((2, 2, 4, 4, 3)), mask=np.reshape(mask, (2, 2)))
    update = SimpleNamespace(precision=SimpleNamespace(variable=tf.float32), _replica_step=step)
    with pytest.raises(Seen) as seen:
        Update.start(update, [batch], plan, key=1, rate=0.1, padded=padded, overlap=True)
    overlap, fused = seen.value.args
    assert overlap is fused  # here, where neither precision nor order is against the fused form
    return overlap


def test_an_update_with_padding_needs_more_memory_and_is_reduced_when_its_work_is_done():
    """Then a rank that has too little of it can still say so."""
    assert overlaps(padded=False, mask=[1, 1, 1, 1])
    assert not overlaps(padded=True, mask=[1, 1, 1, 1])  # padding elsewhere
    assert not overlaps(padded=False, mask=[1, 1, 0, 1])  # an image that cannot be read
