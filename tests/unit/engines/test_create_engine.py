"""What the config says reaches the engine, whichever it is."""

import sys
from types import ModuleType

import pytest

from distxcept.cluster import Placement
from distxcept.config.schema import EngineSection
from distxcept.engines import create_engine, devices
from distxcept.errors import ConfigError

ALONE = Placement(launcher="local")


@pytest.fixture
def one_cpu(monkeypatch):
    monkeypatch.setattr(devices, "prepare_devices", lambda *_, **__: ["CPU:0"])
    monkeypatch.setattr(devices, "prepare_rank_device", lambda *_, **__: "CPU:0")
    horovod, hvd = ModuleType("horovod"), ModuleType("horovod.tensorflow")
    ranks = dict(
        init=lambda: None,
        rank=lambda: 0,
        size=lambda: 1,
        local_size=lambda: 1,
        local_rank=lambda: 0,
        nccl_built=lambda: 0,
    )
    vars(hvd).update(ranks)
    vars(horovod).update(tensorflow=hvd)
    monkeypatch.setitem(sys.modules, "horovod", horovod)
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", hvd)


@pytest.mark.parametrize("name", ["single", "mirrored", "horovod"])
@pytest.mark.parametrize(("jit", "compiles"), [("auto", False), ("off", False), ("on", True)])
def test_jit(one_cpu, name, jit, compiles):
    engine = create_engine(EngineSection(name=name, jit=jit), ALONE)
    assert (engine.name, engine.jit) == (name, compiles)

    def part(value):
        return value

    assert (engine.compile_part(part) is not part) == compiles


def test_several_tasks_are_never_several_runs():
    two = Placement(launcher="mpirun", size=2)
    with pytest.raises(ConfigError, match=r"2 tasks were launched, but engine\.name is single"):
        create_engine(EngineSection(name="single"), two)


def rank_on_a_gpu(monkeypatch, nccl: int, **engine):
    monkeypatch.setattr(devices, "prepare_rank_device", lambda *_, **__: "GPU:0")
    hvd = sys.modules["horovod.tensorflow"]
    monkeypatch.setattr(hvd, "nccl_built", lambda: nccl)
    monkeypatch.setattr(hvd, "size", lambda: 2)
    return create_engine(
        EngineSection(**engine), Placement(launcher="mpirun", size=2, local_size=2, wire_up="pmix")
    )


def test_ranks_on_gpus_need_nccl(one_cpu, monkeypatch):
    with pytest.raises(ConfigError) as caught:
        rank_on_a_gpu(monkeypatch, nccl=0)
    assert "launch/build_horovod.sh --gpu" in str(caught.value)
    assert caught.value.alike  # one rank tells it for all


def test_ranks_on_gpus_with_nccl_or_by_choice(one_cpu, monkeypatch):
    assert rank_on_a_gpu(monkeypatch, nccl=22304).devices() == ["GPU:0"]
    assert rank_on_a_gpu(monkeypatch, nccl=0, require_nccl=False).devices() == ["GPU:0"]
