"""Which larger micro batch is proposed: one that would fit, saves a step, and has not failed before."""

from dataclasses import replace

import pytest

from distxcept.batching import plan_batches
from distxcept.config.schema import Config
from distxcept.memory.candidates import Situation
from distxcept.memory.roomier import ESTIMATE_ERROR, Roomier
from distxcept.memory.sample import Moment
from distxcept.model.layout import Layout

GIB = 2**30
MOMENT = Moment(phase="train", update=100, micro_batch=8)


def roomier(micro=8, *, lanes=None, memory=None, **options):
    config = Config.model_validate(
        {
            "data": {"train": {"kind": "synthetic", "samples": 640, "classes": 10}},
            "batch": {"global": 64, "virtual": 8, "micro": micro},
            "memory": {"reserve": "0B", **(memory or {})},
        }
    )
    plan = plan_batches(
        samples=640, global_batch=64, virtual_batch=8, micro_batch=micro, replicas=1, lanes=lanes
    )
    situation = Situation(Layout(classes=10, width=1.0), "gpu", "single", False)
    return Roomier(config, plan, False, situation, **options)


def extra(micro):
    """What a micro batch needs beyond micro batch 8, by the estimate."""
    one = roomier()
    (now,) = one._candidates(8)
    return next(c.needed_bytes for c in one._candidates("auto") if c.micro_batch == micro) - now.needed_bytes


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (1000 * GIB, (64, 1)),
        (extra(32) * (1 + ESTIMATE_ERROR) + 1, (32, 2)),
        # The estimate may be too low: not proposed although it says that it fits.
        (extra(32) * (1 + ESTIMATE_ERROR / 2), (24, 3)),
        (extra(16) * 0.9, None),
        (0, None),
        (-GIB, None),
    ],
)
def test_the_largest_that_fits(free, expected):
    assert roomier()(MOMENT, int(free)) == expected


def test_under_a_limit_that_others_leave_no_room_for():
    assert roomier(memory={"limit": "1000GiB"})(MOMENT, 0) is None
    assert roomier(memory={"limit": "1000GiB"})(MOMENT, 1000 * GIB) == (64, 1)


@pytest.mark.parametrize(
    "one",
    [
        roomier(64),
        roomier(tried=True),
        roomier(16),  # began with 16, runs with 8: it ran out of memory
        roomier(lanes=8),
        roomier(memory={"reserve": "1100GiB"}),
        roomier(memory={"limit": "2GiB"}),
    ],
    ids=["whole already", "tried before", "shrunk", "ordered", "reserve", "limit"],
)
def test_nothing_to_propose(one):
    moment = replace(MOMENT, micro_batch=64) if one.plan.micro_batch == 64 else MOMENT
    assert one(moment, 1000 * GIB) is None
