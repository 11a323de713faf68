"""The cards of a process: by every numbering, with one reading of their memory, one for each rank, and lost or not."""

import json
from types import SimpleNamespace

import pytest

from distxcept.config.schema import MemorySection
from distxcept.errors import (
    ConfigError,
    DistxceptError,
    DoesNotFitError,
    LostForMemoryError,
    PeerLostError,
    StopRequested,
)
from distxcept.memory.budget import GPU_OWN_BYTES, cards_budget
from distxcept.memory.cuda_cards import CudaDevice
from distxcept.memory.nvml import CardPlace
from distxcept.training import choose_plan, own_cards
from distxcept.training.own_cards import (
    RankCard,
    StartReading,
    card_problem,
    check_one_rank_per_card,
    device_for_child,
    lost_cards_named,
    places_of_devices,
)
from tests.unit.memory.samples import GIB, card


@pytest.fixture
def third_of_four(monkeypatch):
    """TensorFlow was shown CUDA's device 2; NVML counts the other way round."""
    visible = [SimpleNamespace(name="/physical_device:GPU:2")]
    fake = SimpleNamespace(config=SimpleNamespace(get_visible_devices=lambda kind: visible))
    monkeypatch.setattr(own_cards, "tf", fake)
    monkeypatch.setattr(own_cards, "places_of", lambda numbers: [CardPlace(3 - number) for number in numbers])
    monkeypatch.setattr(
        own_cards,
        "cuda_devices",
        lambda numbers: {number: CudaDevice(f"bus {number}", "u") for number in numbers},
    )


def test_numbers(third_of_four):
    assert places_of_devices(["GPU:0"]) == [CardPlace(1)]
    assert device_for_child("GPU:0") == "GPU:2"


def test_a_cpu_asks_nobody(monkeypatch):
    monkeypatch.setattr(own_cards, "tf", None)
    assert places_of_devices(["CPU:0"]) == []
    assert device_for_child("CPU:1") == "CPU:1"


def test_a_rank_measures_its_own_card(third_of_four, monkeypatch):
    """Two ranks, two kinds of card: what each calls GPU:0 is not the machine's first."""
    names = {0: "T4", 1: "A100", 2: "T4", 3: "T4"}
    places = places_of_devices(["GPU:0"])
    cards = [card(one.index, name=names[one.index], memory_total_bytes=40 * GIB) for one in places]
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
        on_cpu=False,
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


def reading(monkeypatch, *cards, **memory):
    monkeypatch.setattr(own_cards, "read_devices", lambda numbers: dict(zip(numbers, cards, strict=True)))
    return StartReading(MemorySection(**memory))


def test_the_limit_of_a_run_is_that_of_the_fullest_card_at_its_start(monkeypatch):
    cards = card(0, memory_free_bytes=14 * GIB), card(1, memory_free_bytes=5 * GIB)
    start = reading(monkeypatch, *cards, reserve="1GiB")
    assert start.limit_bytes([0, 1]) == 4 * GIB - GPU_OWN_BYTES
    assert start.cards == list(cards)
    assert cards_budget(start.cards, MemorySection(reserve="1GiB")).allocator_bytes == 4 * GIB - GPU_OWN_BYTES


def test_without_a_reading_only_the_user_limits(monkeypatch):
    unknown = card(memory_free_bytes=None)
    assert reading(monkeypatch, unknown).limit_bytes([0]) is None
    assert reading(monkeypatch, unknown, limit="2GiB").limit_bytes([0]) == 2 * GIB


def test_a_full_card_is_told_before_the_start(monkeypatch):
    with pytest.raises(DoesNotFitError, match=r"no memory is left for the training on .*GPU 3 "):
        reading(monkeypatch, card(3, memory_free_bytes=GIB // 2)).limit_bytes([0])


def test_a_lost_card_is_told_before_the_start(monkeypatch):
    with pytest.raises(DistxceptError, match=r"GPU 1 of .* cannot be used: GPU is lost; reset it") as caught:
        reading(monkeypatch, card(0), card(1, lost=True, problem="GPU is lost")).limit_bytes([0, 1])
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("error", [RuntimeError("CUDA_ERROR_UNKNOWN"), LostForMemoryError("on one device")])
@pytest.mark.parametrize(("ranks", "code"), [(1, 1), (2, 6)])
def test_a_card_lost_during_the_training_is_named(third_of_four, monkeypatch, ranks, code, error):
    engine = SimpleNamespace(devices=lambda: ["GPU:0"], ranks=ranks)
    state = card(1, lost=True, problem="GPU is lost")
    monkeypatch.setattr(own_cards, "read_cards", lambda places: [state] if places == [CardPlace(1)] else [])
    said = pytest.raises(DistxceptError, match=r"GPU 1 of .* was lost during the training")
    with said as caught, lost_cards_named(engine):
        raise error
    assert caught.value.exit_code == code
    assert isinstance(caught.value, PeerLostError) == (ranks > 1)


@pytest.mark.parametrize(
    ("lost", "error"),
    [(False, RuntimeError("a bug")), (True, StopRequested("stop")), (True, KeyboardInterrupt())],
)
def test_other_errors_stay_as_they_are(third_of_four, monkeypatch, lost, error):
    engine = SimpleNamespace(devices=lambda: ["GPU:0"], ranks=1)
    monkeypatch.setattr(own_cards, "read_cards", lambda places: [card(1, lost=lost)])
    with pytest.raises(type(error)) as caught, lost_cards_named(engine):
        raise error
    assert caught.value is error


def on(rank, bus, uuid="a", host="h"):
    return RankCard(rank=rank, host=host, on_cpu=False, bus_id=bus, uuid=uuid)


@pytest.mark.parametrize(
    "ranks",
    [
        [on(0, "01"), on(1, "02")],
        [on(0, "01"), on(1, "01", host="another host")],
        [on(0, "01", "slice 0"), on(1, "01", "slice 1")],
        [on(0, None), on(1, None)],  # nothing is known
        [RankCard(rank=0, host="h", on_cpu=True), RankCard(rank=1, host="h", on_cpu=True)],
    ],
)
def test_ranks_with_a_device_each(ranks):
    assert card_problem(ranks) is None


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([on(0, "01"), on(1, "02"), on(2, "01")], "ranks 0 and 2 on h use the same card (PCI bus id 01)"),
        ([on(0, "01", None), on(1, "01", None)], "ranks 0 and 1 on h use the same card"),
        ([on(0, "01", "slice 0"), on(1, "01", "slice 0")], "ranks 0 and 1 on h use the same card"),
        (
            [on(0, "01"), RankCard(rank=1, host="g", on_cpu=True)],
            "rank 1 on g has no GPU, but rank 0 on h has one",
        ),
    ],
)
def test_ranks_that_are_refused(ranks, said):
    assert said in card_problem(ranks)


def test_every_rank_hears_that_two_share_a_card(third_of_four):
    engine = SimpleNamespace(
        devices=lambda: ["GPU:0"], ranks=2, rank=0, on_cpu=False, exchange=lambda message: [message, message]
    )
    with pytest.raises(ConfigError, match=r"use the same card \(PCI bus id bus 2\)") as caught:
        check_one_rank_per_card(engine)
    assert caught.value.alike and caught.value.exit_code == 2
    check_one_rank_per_card(SimpleNamespace(ranks=1))
