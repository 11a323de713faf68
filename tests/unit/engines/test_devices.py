"""Which cards a process takes, with a TensorFlow that only pretends to have some."""

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
    prepare_devices(["GPU:1", "GPU:3"], None, limit_bytes=5 * 2**30)
    assert config.limits == {config.gpus[number].name: [5120] for number in (1, 3)}
    assert config.grows == []  # said by a variable: TensorFlow does not take both


def test_too_many(config):
    with pytest.raises(ConfigError, match="is 5, but TensorFlow sees 4 GPUs"):
        prepare_devices(5, None)
    with pytest.raises(ConfigError, match="names GPU:4, but TensorFlow sees 4"):
        prepare_devices(["GPU:4"], None)


@pytest.mark.parametrize("name", ["GPU:²", "GPU", "GPU:-1", "TPU:0", "CPU:4000000000"])
def test_names_that_are_none(config, name):
    with pytest.raises(ConfigError):
        prepare_devices([name], None)


def test_a_rank_sees_its_own_card_as_the_first(config):
    placement = Placement(launcher="mpirun", rank=6, size=8, local_rank=2, local_size=4)
    assert prepare_rank_device(EngineSection(threads=1), placement, 2) == "GPU:0"
    assert config.shown == [2]
