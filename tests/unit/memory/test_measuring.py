"""What a measurement depends on, and what it does not."""

from dataclasses import replace

import pytest

from distxcept.config.schema import Config, MemorySection
from distxcept.data.peek import KnownData
from distxcept.memory import measuring
from distxcept.memory.budget import CPU_OWN_BYTES, GPU_OWN_BYTES, cards_budget, gpu_budget, host_budget
from distxcept.memory.measuring import kind_of, measure, measure_jit, nothing_fits, trial_request
from distxcept.memory.planning import make_plan
from distxcept.memory.probe import Cache, Measured, TrialFailed
from tests.unit.memory.samples import GIB, card

MIB = 2**20


def proposal(free_bytes: int, engine=None, **data):
    config = Config.model_validate(
        {
            "model": {"image_size": 96, "width": 0.25},
            "data": {"train": {"kind": "synthetic", "samples": 64, "classes": 4}} | data,
            "batch": {"global": 32, "virtual": 8},
            "engine": engine or {},
        }
    )
    budget = cards_budget([card(memory_free_bytes=free_bytes)], config.memory)
    return make_plan(config, budget, KnownData(64, 4), replicas=1, engine="single")


@pytest.mark.parametrize(
    ("device", "cards", "kind"),
    [
        ("GPU:0", [card(3, name="T4", memory_total_bytes=16 * GIB)], f"T4 {16 * GIB}"),
        ("GPU:0", [], "GPU"),  # the driver tells nothing: equal on all ranks
        ("GPU:5", [], "GPU"),
    ],
)
def test_kinds_of_cards(device, cards, kind):
    assert kind_of(device, cards) == kind


def test_the_kind_of_a_processor_is_its_model():
    assert kind_of("CPU:0", []) == kind_of("CPU:1", []) != "GPU"


def test_a_replica_without_work_in_this_plan_is_tried_with_some():
    plan = proposal(8 * GIB)
    spread = replace(plan.batches, replicas=6, shares=(1,) * 6)
    idle = [len(block) for block in spread.blocks(spread.virtual_per_update)].index(0)
    assert trial_request(plan, spread, "GPU:0", replica=idle)["virtual_batches"] == 1


@pytest.mark.parametrize(("ranks", "overlap"), [(1, "on"), (8, "off"), (8, "on"), (8, "auto")])
def test_a_trial_leaves_room_for_gradients_on_their_way(ranks, overlap):
    """It runs alone, the training among ranks."""
    config = Config.model_validate(
        {
            "data": {"train": {"kind": "synthetic", "samples": 256, "classes": 4}},
            "batch": {"global": 256, "virtual": 8},
            "engine": {"overlap": overlap},
        }
    )
    budget = gpu_budget("a card", 16 * GIB, config.memory)
    plan = make_plan(
        config, budget, KnownData(256, 4), replicas=ranks, engine="horovod" if ranks > 1 else "single"
    )
    limit = trial_request(plan, plan.batches, "GPU:0", replica=0)["limit_bytes"]
    left = budget.allocator_bytes - limit  # of the run
    gradients = 4 * sum(parameter.elements for parameter in plan.layout.parameters)
    assert left == 0 if ranks == 1 or overlap == "off" else left > 0.9 * gradients


def measured_with(monkeypatch, tmp_path, free_bytes, device, cores=1, **data):
    """The requests of the trials that it took."""
    tried = []

    def run(request, micro):
        tried.append(request)
        return Measured(micro, request["remat"], True, 1, 100 / micro)

    monkeypatch.setattr(Cache, "of_user", lambda: Cache(tmp_path))
    monkeypatch.setattr(measuring, "run_child", run)
    plan = proposal(free_bytes, **data)
    request = trial_request(plan, replace(plan.batches, cores=cores), device, replica=0)
    measure(plan, request, kind="T4 1", notice=lambda message: None)
    return tried


def test_an_equal_card_and_some_mib_more_or_less_need_no_new_trial(monkeypatch, tmp_path):
    free = 8 * GIB
    first = measured_with(monkeypatch, tmp_path, free + 70 * MIB, "GPU:0")
    assert first and first[0]["limit_bytes"] == 8 * GIB - GPU_OWN_BYTES - 300 * MIB
    assert not measured_with(monkeypatch, tmp_path, free + 20 * MIB, "GPU:2")
    assert measured_with(monkeypatch, tmp_path, free - GIB, "GPU:0")


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ({"augment": {"mixup": 0.2}}, True),
        ({"augment": {"cutmix": 1.0}}, True),
        ({"cores": 2}, True),
        ({"engine": {"tf32": "off"}}, True),
        ({"engine": {"deterministic": "on"}}, True),
        ({"engine": {"tf32": "on", "deterministic": "off"}}, False),  # as they are by default
        ({"augment": None}, False),
        ({"augment": {"flip": False}}, False),  # the step does not see what the host does before it
    ],
)
def test_what_changes_the_step_needs_a_new_trial(monkeypatch, tmp_path, changed, again):
    assert measured_with(monkeypatch, tmp_path, 8 * GIB, "GPU:0")
    assert bool(measured_with(monkeypatch, tmp_path, 8 * GIB, "GPU:0", **changed)) == again


def test_who_finds_nothing_that_fits_is_sent_to_the_plan_that_measures():
    """The plan by the estimate may say that everything fits."""
    said = nothing_fits(proposal(8 * GIB), [Measured(8, True, False)])
    assert "by the estimate (1 tried); `distxcept plan CONFIG --probe` shows the ways out" in said


@pytest.fixture
def host_trials(monkeypatch, tmp_path):
    """Trials on a host with so much free memory, each with the same peak: what is chosen, measured and was tried."""
    monkeypatch.setattr(Cache, "of_user", lambda: Cache(tmp_path))

    def run(free_bytes, peak_bytes, **memory):
        tried = []

        def child(request, micro):
            tried.append((micro, request["remat"]))
            return Measured(micro, request["remat"], True, peak_bytes, 100 / micro)

        monkeypatch.setattr(measuring, "run_child", child)
        config = proposal(GIB).config.model_copy(update={"memory": MemorySection(**memory)})
        budget = host_budget(free_bytes, 1, 1, config.memory)
        plan = make_plan(config, budget, KnownData(64, 4), replicas=1, engine="single")
        trial = trial_request(plan, plan.batches, "CPU:0", replica=0)
        best, measured = measure(plan, trial, kind="a processor", notice=lambda message: None)
        return best, measured, tried

    return run


def test_a_host_is_not_tried_beyond_what_the_estimate_holds_for_possible(host_trials):
    best, _, tried = host_trials(2 * (CPU_OWN_BYTES + 130 * MIB), 800 * MIB)
    assert tried == [(16, False)] and (best.micro_batch, best.remat) == (16, False)
    assert host_trials(2 * CPU_OWN_BYTES, 800 * MIB) == (None, [], [])
    *_, limited = host_trials(4 * GIB, 800 * MIB, limit="870MiB")
    assert (32, False) in limited  # whose trial is held to the limit


def test_a_peak_beyond_the_budget_of_a_host_does_not_fit(host_trials):
    """What was measured is kept as it was: with more free memory the same trial fits."""
    free = 2 * (CPU_OWN_BYTES + 500 * MIB)
    best, measured, tried = host_trials(free, 3 * GIB)
    assert best is None and tried and not any(one.fits for one in measured)
    assert "peak 3.0 GiB, of 1.2 GiB that a run would take" in measured[0].reason
    best, _, again = host_trials(8 * GIB, 3 * GIB)
    assert best.micro_batch == 32 and not again


def test_a_trial_on_a_card_of_unknown_memory_has_no_limit_either():
    plan = proposal(8 * GIB)
    unknown = replace(plan, budget=cards_budget([], plan.config.memory))
    assert trial_request(unknown, plan.batches, "GPU:0", replica=0)["limit_bytes"] is None


@pytest.mark.parametrize(
    ("engine", "trials"),
    [
        ({}, 1),
        ({"jit": "on"}, 0),
        ({"jit": "off"}, 0),
        ({"deterministic": "on"}, 0),
        ({"reduction": "ordered"}, 0),
    ],
)
def test_xla_is_tried_where_the_config_leaves_the_choice(monkeypatch, tmp_path, engine, trials):
    tried = []

    def child(request, micro_batch):
        tried.append((request["config"]["engine"]["jit"], micro_batch))
        return Measured(micro_batch, False, True, 1, 0.25)

    monkeypatch.setattr(Cache, "of_user", lambda: Cache(tmp_path))
    monkeypatch.setattr(measuring, "run_child", child)
    plan = proposal(8 * GIB, engine)
    best = plan.candidates[0]
    trial = trial_request(plan, plan.batches, "GPU:0", replica=0)
    found = measure_jit(plan, trial, best, kind="T4", notice=lambda _: None)
    assert found == (0.25 if trials else None)
    assert tried == [("on", best.micro_batch)] * trials


def test_xla_that_cannot_be_tried_is_not_used(monkeypatch, tmp_path):
    def child(*_):
        raise TrialFailed("the trial ended with 1: no libdevice")

    monkeypatch.setattr(Cache, "of_user", lambda: Cache(tmp_path))
    monkeypatch.setattr(measuring, "run_child", child)
    plan, said = proposal(8 * GIB), []
    trial = trial_request(plan, plan.batches, "GPU:0", replica=0)
    assert measure_jit(plan, trial, plan.candidates[0], kind="T4", notice=said.append) is None
    assert said[-1] == "XLA could not be measured (the trial ended with 1: no libdevice); it is not used"
