"""Which trainings are compared: complete on every kind of machine, and each with a valid config."""

import pytest
from machines import cpus, gpus

from distxcept.batching import plan_batches
from distxcept.config.schema import Config
from distxcept.prove import cases, memory, recovery, speed
from distxcept.prove.context import Context

MACHINES = {
    "1 cpu": cpus(1),
    "2 cpus": cpus(2),
    "3 cpus": cpus(3, no_ranks="no MPI"),
    "1 gpu": gpus(1),
    "2 gpus": gpus(2),
    "8 gpus": gpus(8),
    "2 old gpus": gpus(2, tf32=False),
}
EVERY = [(name, quick) for name in MACHINES for quick in (True, False)]


@pytest.mark.parametrize(("name", "quick"), EVERY)
def test_configs_are_valid(name, quick):
    for job in cases.jobs(MACHINES[name], quick=quick):
        for case in job.cases:
            config = Config.model_validate(case.config())
            assert case.devices <= job.devices
            replicas = case.devices * job.ranks
            source = case.keys["data.train"]
            plan_batches(
                samples=source["samples"],
                global_batch=config.batch.global_,
                virtual_batch=config.batch.virtual,
                micro_batch=config.batch.micro,
                replicas=replicas,
                lanes=config.engine.lanes if config.engine.reduction == "ordered" else None,
            )


@pytest.mark.parametrize(("name", "quick"), EVERY)
def test_every_case_is_compared(name, quick):
    """One that nothing looks at would only take time."""
    known = {case.name for job in cases.jobs(MACHINES[name], quick=quick) for case in job.cases}
    compared = {
        one for pair in cases.pairs(MACHINES[name], quick=quick) for one in (pair.case, pair.reference)
    }
    assert known <= compared
    names = [case.name for job in cases.jobs(MACHINES[name], quick=quick) for case in job.cases]
    assert len(names) == len(set(names)), "each case has a folder of its own"


def test_what_the_documents_promise_is_there():
    found = {pair.id: pair.bound for pair in cases.pairs(gpus(4), quick=False)}
    assert found == {
        "micro_steps": 1e-11,
        "again": 1e-11,
        "mirrored2": 1e-11,
        "mirrored3": 1e-11,
        "mirrored4": 1e-11,
        "ordered_again": 0.0,
        "ordered_mirrored": 0.0,
        "float32_mirrored": 2e-5,
        "horovod": 1e-11,
        "ordered_horovod": 0.0,
        "cpu": 1e-11,
        "float32_again": 0.0,
        "float32_cpu": None,
        "tf32": None,
    }
    assert {pair.id: pair.bound for pair in cases.pairs(cpus(2), quick=True)}["again"] == 0.0


def test_worlds():
    assert cases.worlds(1, quick=False) == []
    assert cases.worlds(4, quick=False) == [2, 3, 4]
    assert cases.worlds(6, quick=False) == [2, 3, 4, 6]
    assert cases.worlds(8, quick=False) == [2, 3, 4, 8]
    assert cases.worlds(8, quick=True) == [8]


def test_gpus_are_exact_where_bits_are_compared():
    by_name = {case.name: case for job in cases.jobs(gpus(2), quick=False) for case in job.cases}
    for name in ("float32", "float32_again", "float32_mirrored"):
        assert by_name[name].keys["engine.tf32"] == "off"
        assert by_name[name].keys["engine.deterministic"] == "on"
    assert by_name["tf32"].keys["engine.tf32"] == "on"


@pytest.mark.parametrize(("name", "quick"), EVERY)
def test_configs_of_the_memory_sections(name, quick, tmp_path):
    machine = MACHINES[name]
    Config.model_validate(cases.nested(recovery.base(machine.devices)))
    config = Config.model_validate(cases.nested(memory.base(Context(machine, quick, tmp_path, None))))
    assert (config.memory.limit is None) == (machine.on_gpu and not quick), "only there all of a card is used"


@pytest.mark.parametrize(("name", "quick"), EVERY)
def test_the_update_that_is_timed_ends_no_epoch_and_no_run(name, quick):
    machine, setting = MACHINES[name], speed.setting_of(MACHINES[name], quick=quick)
    config = Config.model_validate(speed.phase_config(machine, setting))
    plan = plan_batches(
        samples=config.data.train.samples,
        global_batch=config.batch.global_,
        virtual_batch=config.batch.virtual,
        micro_batch=config.batch.micro,
        replicas=machine.devices,
    )
    assert plan.updates_per_epoch == 2 and plan.virtual_batches(0) == machine.devices
    assert config.run.updates > 1000 and config.checkpoint.every_minutes is None
