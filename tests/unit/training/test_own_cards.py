"""A rank's own card, wherever it stands in the machine: in the driver's numbers, in CUDA's, and in a child process."""

import json
from types import SimpleNamespace

import pytest

from distxcept.config.schema import MemorySection
from distxcept.errors import DoesNotFitError
from distxcept.training import choose_plan, own_cards
from distxcept.training.own_cards import device_for_child, numbers_of_cards
from tests.unit.memory.samples import GIB, card


@pytest.fixture
def third_of_four(monkeypatch):
    """TensorFlow was shown CUDA's device 2; NVML counts the other way round."""
    visible = [SimpleNamespace(name="/physical_device:GPU:2")]
    fake = SimpleNamespace(config=SimpleNamespace(get_visible_devices=lambda kind: visible))
    monkeypatch.setattr(own_cards, "tf", fake)
    monkeypatch.setattr(own_cards, "bus_ids", lambda ordinals: [f"bus {number}" for number in ordinals])
    monkeypatch.setattr(own_cards, "find_cards", lambda buses: [3 - int(bus[4:]) for bus in buses])


def test_numbers(third_of_four):
    assert numbers_of_cards(["GPU:0"]) == [1]
    assert device_for_child("GPU:0") == "GPU:2"


def test_a_cpu_asks_nobody(monkeypatch):
    monkeypatch.setattr(own_cards, "tf", None)
    monkeypatch.setattr(own_cards, "find_cards", None)
    assert numbers_of_cards(["CPU:0"]) == []
    assert device_for_child("CPU:1") == "CPU:1"


def test_a_rank_measures_its_own_card(third_of_four, monkeypatch):
    """Two ranks, two kinds of card: what each calls GPU:0 is not the machine's first."""
    names = {0: "T4", 1: "A100", 2: "T4", 3: "T4"}
    cards = [card(n, name=names[n], memory_total_bytes=40 * GIB) for n in numbers_of_cards(["GPU:0"])]
    sent, tried = [], []

    def exchange(message: bytes) -> list[bytes]:
        sent.append(json.loads(message))
        another = json.dumps([f"T4 {15 * GIB} 1", GIB]).encode()
        return [another if isinstance(sent[-1], list) else message, message]

    engine = SimpleNamespace(
        devices=lambda: ["GPU:0"],
        local_replicas=range(1, 2),
        rank=1,
        is_chief=False,
        ranks=2,
        local_ranks=1,
        exchange=exchange,
    )
    plan = SimpleNamespace(shares=(1, 1), micro_batch=8, lanes=None)
    proposal = SimpleNamespace(
        budget=SimpleNamespace(device="gpu"), chosen=SimpleNamespace(micro_batch=8, remat=False)
    )
    monkeypatch.setattr(choose_plan, "propose", lambda *_: proposal)
    monkeypatch.setattr(
        choose_plan, "trial_request", lambda proposal, plan, device, *, replica: tried.append(device)
    )
    monkeypatch.setattr(choose_plan, "measure", lambda *_, **__: (None, []))
    monkeypatch.setattr(choose_plan, "nothing_fits", lambda *_: "too small")
    config = SimpleNamespace(memory=MemorySection(), batch=SimpleNamespace(micro="auto"))
    with pytest.raises(DoesNotFitError, match="too small"):
        choose_plan.choose_plan(config, engine, plan, 10, cards=cards)
    assert sent[1][0] == f"A100 {40 * GIB} 1"
    assert tried == ["GPU:2"]


def test_ranks_of_the_job_are_no_others(monkeypatch):
    family = SimpleNamespace(children=lambda: [SimpleNamespace(pid=8), SimpleNamespace(pid=9)])
    monkeypatch.setattr(own_cards.psutil, "Process", lambda: SimpleNamespace(pid=8, parent=lambda: family))
    assert own_cards.pids_of_job(SimpleNamespace(local_ranks=2)) == {8, 9}
    assert own_cards.pids_of_job(SimpleNamespace(local_ranks=1)) == {8}
