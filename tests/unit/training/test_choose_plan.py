import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from distxcept.config.schema import Config
from distxcept.memory.budget import gpu_budget
from distxcept.memory.planning import build_plan
from distxcept.memory.probe import Measured, TrialFailed
from distxcept.training import choose_plan
from distxcept.training.choose_plan import fullest_of_kind, shares_by_speed
from tests.unit.memory.samples import GIB, card


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
        config=config,
        budget=budget,
        candidates=options,
        chosen=options[0],
        reduction_bytes=0,
        layout=SimpleNamespace(classes=3),
    )
    monkeypatch.setattr(choose_plan, "device_for_child", lambda device: device)

    def choose(rank, measured, with_jit=None):
        monkeypatch.setattr(choose_plan, "measure_jit", lambda *_, **__: with_jit)
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


@pytest.mark.parametrize(
    ("with_jit", "used", "told"),
    [
        (None, False, []),  # a CPU, or engine.jit leaves no choice
        (2.0, True, ["XLA takes 2.00 s for an update that takes 3.00 s without: it is used (engine.jit)"]),
        (
            2.95,
            False,
            ["XLA takes 2.95 s for an update that takes 3.00 s without: it is not used (engine.jit)"],
        ),
        (
            4.0,
            False,
            ["XLA takes 4.00 s for an update that takes 3.00 s without: it is not used (engine.jit)"],
        ),
    ],
)
def test_xla_is_used_where_it_is_faster(on_a_card, with_jit, used, told):
    def measured(proposal, trial, **_):
        return Option(8), [Measured(8, False, True, 1, 3.0)]

    choice, said = on_a_card(0, measured, with_jit)
    assert (choice.jit, said) == (used, told)
    assert choice.seconds == (with_jit if used else 3.0)  # rank 0 has one virtual batch


def test_where_nothing_can_be_measured_the_estimate_decides(on_a_card):
    def measured(*_, **__):
        raise TrialFailed("the trial ended with 1: the card takes one process only")

    choice, said = on_a_card(0, measured)
    assert (choice.micro, choice.seconds, choice.problem) == (16, None, "")
    assert said == [
        "nothing could be measured (the trial ended with 1: the card takes one process only); going by the estimate"
    ]


@pytest.mark.parametrize(
    ("devices", "measuring"),
    [
        ([("T4", 8 * GIB)], [0]),
        ([("T4", 8 * GIB), ("T4", 8 * GIB)], [0, 0]),
        ([("T4", 8 * GIB), ("T4", 3 * GIB), ("T4", 5 * GIB)], [1, 1, 1]),
        ([("T4", 8 * GIB), ("A100", 3 * GIB), ("T4", 5 * GIB), ("A100", 2 * GIB)], [2, 3, 2, 3]),
        # alike, but for some MiB
        ([("T4", 8 * GIB + 70 * 2**20), ("T4", 8 * GIB + 20 * 2**20)], [0, 0]),
    ],
)
def test_of_each_kind_the_fullest_card_is_measured(devices, measuring):
    assert fullest_of_kind(devices) == measuring


def test_the_plan_of_equal_cards_is_that_of_the_fullest(monkeypatch):
    """Rank 1 has the same card as rank 0, but less of it."""
    config = Config.model_validate(
        {
            "data": {"train": {"kind": "synthetic", "samples": 60, "classes": 3}},
            "batch": {"global": 24, "virtual": 8},
        }
    )
    plan = build_plan(config, 60, 2)
    free = {0: 8 * GIB, 1: 3 * GIB}
    monkeypatch.setattr(
        choose_plan, "_choose_here", lambda engine, *_: choose_plan.Choice({0: 16, 1: 8}[engine.rank], False)
    )
    monkeypatch.setattr(choose_plan, "propose", lambda *_: None)
    sent: dict[int, list[bytes]] = {0: [], 1: []}
    said: list[str] = []

    def of(rank, heard):
        def exchange(message):
            sent[rank].append(message)
            return heard[len(sent[rank]) - 1] if len(sent[rank]) <= len(heard) else [message, message]

        engine = SimpleNamespace(
            devices=lambda: ["GPU:0"], on_cpu=False, rank=rank, local_replicas=range(rank, rank + 1)
        )
        engine.exchange, engine.local_ranks, engine.is_chief = exchange, 2, rank == 0
        cards = [card(rank, name="T4", memory_free_bytes=free[rank], memory_total_bytes=16 * GIB)]
        return choose_plan._choices_of_all(config, engine, plan, 3, cards, said.append)

    for rank in range(2):  # what each says first
        of(rank, [])
    first = [sent[rank][0] for rank in range(2)]
    sent = {0: [], 1: []}
    for rank in range(2):
        of(rank, [first])
    second = [sent[rank][1] for rank in range(2)]
    sent = {0: [], 1: []}
    assert [[choice.micro for choice in of(rank, [first, second])] for rank in range(2)] == [[8, 8], [8, 8]]
    assert set(said) == {"rank 1 has the least memory among equal devices: it finds out what fits"}


@pytest.mark.parametrize(
    ("free", "remat", "expected"),
    [
        ([6 * GIB, 6 * GIB], "auto", False),
        ([6 * GIB, 7 * GIB // 2], "auto", True),  # what one rank needs, all do
        ([6 * GIB, 7 * GIB // 2], "off", False),
        ([6 * GIB, 6 * GIB], "on", True),
        ([GIB, GIB], "auto", False),  # nothing fits: tried as it is, and made smaller on the way
    ],
)
def test_a_fixed_micro_batch_is_rematerialised_where_plan_says_so(monkeypatch, free, remat, expected):
    config = Config.model_validate(
        {
            "data": {"train": {"kind": "synthetic", "samples": 64, "classes": 3}},
            "batch": {"global": 64, "virtual": 16, "micro": 16},
            "memory": {"remat": remat, "reserve": "256MiB"},
        }
    )
    plan = build_plan(config, 64, 2)

    def of(rank, exchange):
        cards = [card(rank, name="T4", memory_free_bytes=free[rank], memory_total_bytes=16 * GIB)]
        monkeypatch.setattr(choose_plan, "pids_of_job", lambda engine: set())
        engine = SimpleNamespace(
            name="horovod", devices=lambda: ["GPU:0"], on_cpu=False, rank=rank, ranks=2, local_ranks=2
        )
        engine.local_replicas, engine.is_chief, engine.exchange = range(rank, rank + 1), rank == 0, exchange
        return choose_plan.choose_plan(config, engine, plan, 3, cards=cards)[1]

    def answers(message):
        """The other rank's word on what it needs; else the same as ours."""
        value = json.loads(message)
        return [message, b"true" if value is False and 7 * GIB // 2 in free else message]

    chosen = of(0, answers)
    assert (chosen.micro, chosen.remat) == (16, expected)
    assert of(1, lambda message: [message, message]).remat is expected


def test_the_chief_tells_who_uses_the_cards_of_all_ranks():
    messages = [
        json.dumps({"host": host, "sentences": sentences}).encode()
        for host, sentences in [("a", ["GPU 0 is shared"]), ("b", []), ("c", ["GPU 3 is shared"])]
    ]

    def told(rank):
        said: list[str] = []
        engine = SimpleNamespace(rank=rank, is_chief=rank == 0, exchange=lambda message: messages)
        choose_plan._tell_of_all(engine, [], said.append)
        return said

    assert told(0) == ["GPU 0 is shared", "rank 2 on c: GPU 3 is shared"]
    assert told(1) == []
    assert told(2) == ["GPU 3 is shared"]
