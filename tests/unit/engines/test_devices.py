"""Which cards a process takes, with a TensorFlow that only pretends to have some."""

import os
import re
from types import SimpleNamespace

import pytest

from distxcept.cluster import Placement
from distxcept.config.schema import EngineSection
from distxcept.engines import devices as module
from distxcept.engines.devices import prepare_devices, prepare_rank_device
from distxcept.errors import ConfigError


class Config:
    """Stands for tf.config; remembers what was shown and shared."""

    def __init__(self, gpus: int):
        self.gpus = [SimpleNamespace(name=f"/physical_device:GPU:{k}") for k in range(gpus)]
        self.visible = list(self.gpus)
        self.grows: list[str] = []
        self.limits: dict[str, list[int | None]] = {}
        self.threading = SimpleNamespace(set_intra_op_parallelism_threads=lambda number: None)
        self.experimental = SimpleNamespace(set_memory_growth=lambda gpu, on: self.grows.append(gpu.name))

    def list_physical_devices(self, kind: str) -> list:
        return self.gpus if kind == "GPU" else [SimpleNamespace(name="/physical_device:CPU:0")]

    def set_visible_devices(self, devices: list, kind: str) -> None:
        assert kind == "GPU"
        self.visible = devices

    def set_logical_device_configuration(self, device, parts) -> None:
        self.limits[device.name] = parts

    def LogicalDeviceConfiguration(self, memory_limit=None):
        return memory_limit

    @property
    def shown(self) -> list[int]:
        return [int(gpu.name[-1]) for gpu in self.visible]


@pytest.fixture
def config(monkeypatch):
    found = Config(4)
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "")  # so that it is as before after the test
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH")
    monkeypatch.setattr(module, "tf", SimpleNamespace(config=found))
    return found


@pytest.mark.parametrize(
    ("wanted", "shown", "names"),
    [
        ("auto", [0, 1, 2, 3], ["GPU:0", "GPU:1", "GPU:2", "GPU:3"]),
        (1, [0], ["GPU:0"]),
        (["GPU:2"], [2], ["GPU:0"]),
        (["gpu:3", "GPU:1"], [1, 3], ["GPU:1", "GPU:0"]),
        (["CPU:0"], [], ["CPU:0"]),
    ],
)
def test_other_cards_are_left_alone(config, wanted, shown, names):
    assert prepare_devices(wanted, None) == names
    assert config.shown == shown
    assert config.grows == [config.gpus[number].name for number in shown]


def test_the_limit_is_that_of_each_card(config):
    asked = []
    prepare_devices(["GPU:3", "GPU:1"], None, limit=lambda cards: asked.append(cards) or 5 * 2**30)
    assert asked == [[1, 3]]
    assert config.limits == {config.gpus[number].name: [5120] for number in (1, 3)}
    assert config.grows == []  # said by a variable: TensorFlow does not take both
    assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


def test_too_many(config):
    with pytest.raises(ConfigError, match="is 5, but TensorFlow sees 4 GPUs"):
        prepare_devices(5, None)
    with pytest.raises(ConfigError, match="names GPU:4, but TensorFlow sees 4"):
        prepare_devices(["GPU:4"], None)


def test_cards_are_not_asked_for_by_a_cpu(config):
    assert prepare_devices(["CPU:0"], None, limit=lambda cards: pytest.fail("asked")) == ["CPU:0"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["GPU:²"], "which is no device; write GPU:0 or CPU:0"),
        (["GPU"], "which is no device"),
        (["GPU:-1"], "which is no device"),
        (["TPU:0"], "names 'TPU:0', which is no device"),
        (["CPU:4000000000"], "there can be 1024 at most"),
        (["GPU:0", "gpu:0"], "names a device twice"),
        (["GPU:0", "CPU:0"], "mixes GPUs and CPUs"),
    ],
)
def test_names_that_are_refused(config, names, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        prepare_devices(names, None)
    placement = Placement(launcher="mpirun", size=2, local_size=2)
    if "1024" not in said:  # a rank does not split its CPU
        with pytest.raises(ConfigError, match=re.escape(said)) as caught:
            prepare_rank_device(EngineSection(devices=tuple(names)), placement, 0)
        assert caught.value.alike  # one rank tells it for all


@pytest.mark.parametrize(
    ("gpus", "devices", "cards"),
    [
        (4, "auto", [0, 1, 2, 3]),  # all cards are shown to all ranks
        (1, "auto", [0, 0, 0, 0]),  # CUDA_VISIBLE_DEVICES=$LOCAL_RANK, --gpu-bind=single:1
        (2, "auto", [0, 1, 0, 1]),  # two ranks for each half of the machine, which sees its own two cards
        (4, ("GPU:3", "GPU:1"), [3, 1, 3, 1]),
    ],
)
def test_a_rank_takes_one_card_and_sees_it_as_the_first(config, gpus, devices, cards):
    """Whether two of them have taken the same one they find out by exchange of what CUDA tells."""
    placement = Placement(launcher="mpirun", rank=6, size=8, local_rank=2, local_size=4)
    config.gpus = config.gpus[:gpus]
    taken = []
    for local_rank in range(4):
        section = EngineSection(threads=1, devices=devices)
        assert prepare_rank_device(section, placement, local_rank, limit=taken.append) == "GPU:0"
        assert config.shown == taken[-1]
    assert taken == [[card] for card in cards]


def test_ranks_of_which_the_cpu_is_asked_for_leave_the_cards_alone(config):
    placement = Placement(launcher="mpirun", rank=1, size=2, local_rank=1, local_size=2)
    assert prepare_rank_device(EngineSection(threads=1, devices=("CPU:0",)), placement, 1) == "CPU:0"
    assert config.shown == []
