from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from distxcept.config.schema import Config
from distxcept.memory.budget import gpu_budget
from distxcept.memory.probe import Measured, TrialFailed
from distxcept.training import choose_plan
from distxcept.training.build import build_plan
from distxcept.training.choose_plan import shares_by_speed


@pytest.mark.parametrize(
    ("seconds", "shares"),
    [
        ([1.0], None),
        ([1.0, 1.0], None),
        ([1.0, 1.05], None),  # alike, but for noise
        ([1.0, 2.0], (16, 8)),
        ([3.0, 1.0, 1.5], (8, 24, 16)),
        ([None, None], None),
        ([1.0, None], None),
    ],
)
def test_shares_follow_speed(seconds, shares):
    assert shares_by_speed(seconds) == shares


@dataclass(frozen=True)
class Option:
    micro_batch: int
    remat: bool = False
    needed_bytes: int = 1


@pytest.fixture
def on_a_card(monkeypatch):
    """Three virtual batches for two ranks; `measured` says what the trials give."""
    config = Config.model_validate(
        {
            "data": {"train": {"kind": "synthetic", "samples": 60, "classes": 3}},
            "batch": {"global": 24, "virtual": 8},
        }
    )
    plan, options = build_plan(config, 60, 2), [Option(16), Option(8)]
    budget = gpu_budget("a card", 2**33, config.memory)
    proposal = SimpleNamespace(
        config=config, budget=budget, candidates=options, chosen=options[0], layout=SimpleNamespace(classes=3)
    )
    monkeypatch.setattr(choose_plan, "device_for_child", lambda device: device)

    def choose(rank, measured):
        engine = SimpleNamespace(devices=lambda: ["GPU:0"], local_replicas=range(rank, rank + 1))
        monkeypatch.setattr(choose_plan, "measure", measured)
        said = []
        return choose_plan._choose_here(engine, plan, proposal, "T4", said.append), said

    return choose


def test_speed_is_that_of_a_virtual_batch(on_a_card):
    """Equally fast cards with two and with one virtual batch: no reason for other shares."""

    def measured(proposal, trial, **_):
        return Option(8), [Measured(8, False, True, 1, 2.5 * trial["virtual_batches"])]

    choices = [on_a_card(rank, measured)[0] for rank in range(2)]
    assert [choice.seconds for choice in choices] == [2.5, 2.5]
    assert shares_by_speed([choice.seconds for choice in choices]) is None


def test_where_nothing_can_be_measured_the_estimate_decides(on_a_card):
    def measured(*_, **__):
        raise TrialFailed("the trial ended with 1: the card takes one process only")

    choice, said = on_a_card(0, measured)
    assert (choice.micro, choice.seconds, choice.problem) == (16, None, "")
    assert said == [
        "nothing could be measured (the trial ended with 1: the card takes one process only); going by the estimate"
    ]
