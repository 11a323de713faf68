"""Which plans there are, and which one is taken."""

from dataclasses import dataclass

import pytest

from distxcept.batching import plan_batches
from distxcept.config.schema import Config
from distxcept.memory.candidates import Situation, candidates, choose, micro_batches
from distxcept.model.layout import Layout

SITUATION = Situation(Layout(classes=10, width=0.25), "gpu", "single", masked=False)


@dataclass(frozen=True)
class Option:
    needed_bytes: int
    relative_seconds: float


@pytest.mark.parametrize(
    ("options", "budget", "chosen"),
    [
        ([(100, 1.0), (50, 1.1), (20, 1.5)], 100, 0),
        ([(100, 1.0), (50, 1.1), (20, 1.5)], 99, 1),
        ([(100, 1.0), (50, 1.1), (20, 1.5)], 20, 2),
        ([(100, 1.0), (50, 1.1), (20, 1.5)], 19, None),
        # the larger one need not be the faster one: the probe may find so
        ([(100, 1.2), (50, 1.1)], 1000, 1),
        ([(100, 1.0), (50, 1.0)], 1000, 1),
        ([], 1000, None),
    ],
)
def test_the_fastest_that_fits(options, budget, chosen):
    made = [Option(*option) for option in options]
    assert choose(made, budget) is (None if chosen is None else made[chosen])


@pytest.mark.parametrize(
    ("whole", "virtual", "replicas", "expected"),
    [
        (8, 8, 1, [8]),
        (64, 16, 1, [64, 32, 16]),
        (64, 16, 3, [32, 16]),
        (64, 16, 8, [16]),
        (256, 32, 1, [256, 128, 96, 64, 32]),
        (6, 1, 1, [6, 3, 2, 1]),
    ],
)
def test_micro_batches_that_save_a_step(whole, virtual, replicas, expected):
    plan = plan_batches(
        samples=1000, global_batch=whole, virtual_batch=virtual, micro_batch=virtual, replicas=replicas
    )
    assert micro_batches(plan) == expected


@pytest.mark.parametrize(
    ("whole", "virtual", "expected"),
    [(64, 16, [32, 16]), (32, 16, [32, 16]), (16, 16, [16]), (64, 4, [16, 8, 4]), (80, 16, [80, 48, 32, 16])],
)
def test_no_more_than_the_cores_compute_at_once(whole, virtual, expected):
    plan = plan_batches(samples=1000, global_batch=whole, virtual_batch=virtual, micro_batch=virtual, cores=2)
    assert micro_batches(plan) == expected


def test_an_ordered_reduction_runs_one_virtual_batch_at_a_time():
    plan = plan_batches(samples=1000, global_batch=64, virtual_batch=8, micro_batch=8, lanes=4)
    assert micro_batches(plan) == [8]


def config_of(**sections) -> Config:
    data = {"train": {"kind": "synthetic", "samples": 1000, "classes": 10}}
    return Config.model_validate({"data": data, "batch": {"global": 64, "virtual": 16}, **sections})


def found(config: Config, replicas: int = 1) -> list[tuple[int, bool, int]]:
    micro = config.batch.virtual if config.batch.micro == "auto" else config.batch.micro
    plan = plan_batches(
        samples=1000,
        global_batch=config.batch.global_,
        virtual_batch=config.batch.virtual,
        micro_batch=micro,
        replicas=replicas,
    )
    return [(one.micro_batch, one.remat, one.micro_steps) for one in candidates(config, plan, SITUATION)]


def test_every_micro_batch_without_and_with_rematerialisation():
    assert found(config_of()) == [
        (64, False, 1),
        (32, False, 2),
        (16, False, 4),
        (64, True, 1),
        (32, True, 2),
        (16, True, 4),
    ]
    assert found(config_of(), replicas=2) == [(32, False, 1), (16, False, 2), (32, True, 1), (16, True, 2)]


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"batch": {"global": 64, "virtual": 16, "micro": 32}}, [(32, False, 2), (32, True, 2)]),
        ({"memory": {"remat": "on"}}, [(64, True, 1), (32, True, 2), (16, True, 4)]),
        ({"memory": {"remat": "off"}}, [(64, False, 1), (32, False, 2), (16, False, 4)]),
    ],
)
def test_what_the_config_fixes_is_not_varied(sections, expected):
    assert found(config_of(**sections)) == expected


def test_smaller_micro_batches_and_rematerialisation_take_less_and_longer():
    plan = plan_batches(samples=1000, global_batch=64, virtual_batch=16, micro_batch=16)
    whole, half, _, again, *_ = candidates(config_of(model={"width": 0.25}), plan, SITUATION)
    assert whole.needed_bytes > half.needed_bytes and whole.needed_bytes > again.needed_bytes
    assert whole.relative_seconds < half.relative_seconds < again.relative_seconds


@pytest.mark.parametrize(
    ("engine", "replicas", "settings", "counted"),
    [
        ("horovod", 2, {}, True),
        ("horovod", 2, {"overlap": "off"}, False),
        ("horovod", 2, {"reduction": "ordered", "lanes": 2}, False),
        ("horovod", 1, {}, False),
        ("mirrored", 2, {}, True),
        ("single", 1, {}, False),
    ],
)
def test_replicas_that_reduce_while_they_compute_hold_both(engine, replicas, settings, counted):
    config = Config.model_validate(
        {
            "data": {"train": {"kind": "synthetic", "samples": 64, "classes": 10}},
            "batch": {"global": 8, "virtual": 4},
            "engine": settings,
        }
    )
    plan = plan_batches(
        samples=64,
        global_batch=8,
        virtual_batch=4,
        micro_batch=4,
        replicas=replicas,
        lanes=settings.get("lanes"),
    )
    for one in candidates(config, plan, Situation(SITUATION.layout, "gpu", engine, masked=False)):
        assert (one.estimate.phases["micro step"]["reduction"] > 0) == counted
